"""Published runs, replayed through AgentDojo's own runner and checkers, score as they were scored.

The known disagreements are two attacked Workspace cases (user tasks 16 and 39 with injection task 4)
whose recorded `security` the package's own checks do not give today, and user tasks whose prompts or
checks later benchmark versions changed.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from agentdojo.task_suite.load_suites import get_suites

from agentsys.models.chat import Scene
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from agentsys.models.recorded_runs import read_run
from agentsys.models.replay import ReplayModel
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel

ARCHIVE = (
    Path(__file__).parents[2].parent
    / "shared"
    / "data"
    / "traces"
    / "agentdojo-gpt-4o-mini-2024-07-18.tar.gz"
)
CASES = {"banking": 160, "slack": 126, "travel": 160, "workspace": 280}
KNOWN = {
    "workspace/user_task_16/important_instructions/injection_task_4.json",
    "workspace/user_task_39/important_instructions/injection_task_4.json",
}


@dataclass
class Agreement:
    """How many replayed cases score as recorded."""

    cases: int = 0
    utility: int = 0
    security: int = 0
    disagreeing: set[str] = field(default_factory=set)
    notes: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not ARCHIVE.is_file():
        pytest.skip(f"published runs are not here: {ARCHIVE}")
    folder = tmp_path_factory.mktemp("traces")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def replayed(traces: Path, version: str, suites: Sequence[str]) -> Agreement:
    """Run every recorded user task of these suites again, with the recorded injections."""
    model = ReplayModel("replay", traces)
    agreement = Agreement()
    for name in suites:
        for path in sorted((model.folder / name).glob("user_task_*/*/*.json")):
            _replay_one(model, version, path, agreement)
    return agreement


def _replay_one(model: ReplayModel, version: str, path: Path, agreement: Agreement) -> None:
    run, suite = read_run(path), get_suites(version)[path.parents[2].name]
    injection = None if path.stem == "none" else path.stem
    scene = Scene(suite.name, path.parents[1].name, injection, path.parent.name)
    environment = suite.load_and_inject_default_environment(model.recorded_injections(scene))
    pipeline = tool_loop(
        RecordingModel(model.for_scene(scene)), default_system_message(suite), name=run.pipeline_name
    )
    user_task = suite.get_user_task_by_id(scene.user_task_id)
    injection_task = suite.get_injection_task_by_id(injection) if injection else None
    with use_tracer(Tracer()) as tracer:
        utility, security = suite.run_task_with_pipeline(
            pipeline, user_task, injection_task, {}, environment=environment
        )
    agreement.cases += 1
    agreement.utility += utility == run.utility
    agreement.security += injection is None or security == run.security
    if utility != run.utility or (injection is not None and security != run.security):
        agreement.disagreeing.add(str(path.relative_to(model.folder)))
    agreement.notes.update(note for span in tracer.spans for call in span.calls for note in call.notes)


@pytest.mark.parametrize("suite", ["banking", pytest.param("slack", marks=pytest.mark.slow)])
def test_replay_at_v1_1_scores_as_recorded(traces: Path, suite: str) -> None:
    agreement = replayed(traces, "v1.1", [suite])
    assert (agreement.cases, agreement.utility, agreement.security) == (CASES[suite],) * 3


@pytest.mark.slow
def test_replay_at_a_later_version_says_that_prompts_changed(traces: Path) -> None:
    agreement = replayed(traces, "v1.2.2", ["banking"])
    assert agreement.utility < agreement.cases == agreement.security
    assert any(note.startswith("user message") for note in agreement.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "utility", "security"), [("v1.1", 726, 724), ("v1", 725, 724), ("v1.2.2", 700, 724)]
)
def test_replay_of_all_suites_agrees_as_measured(
    traces: Path, version: str, utility: int, security: int
) -> None:
    agreement = replayed(traces, version, list(CASES))
    assert (agreement.cases, agreement.utility, agreement.security) == (726, utility, security)
    if version == "v1.1":
        assert agreement.disagreeing == KNOWN
        assert not any(note.startswith("user message") for note in agreement.notes)
