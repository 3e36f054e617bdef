"""AgentDyn's own package, where its shared copy is at hand."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
import pytest
from small_runs import Silent, records_in

from agentsys.records.case_reader import read_cases
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.agentdyn.agentdyn_benchmark import AgentDyn
from agentsys_plugins.agentdyn.agentdyn_plans import PLANS, _accept_plan
from agentsys_plugins.audit.rescoring.rescore import rescore_records
from agentsys_plugins.rivals.fides.fides_policy import load_written_rules
from baselines.camel.suite_world import load_written_policies
from baselines.flow.labelled_values import load_suite_labels

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT.parent / "shared" / "data" / "agentdyn" / "agentdyn-package.tar.gz"
UNSOLVED = {
    "shopping": ["user_task_4", "user_task_6", "user_task_19"],
    "github": ["user_task_5", "user_task_7", "user_task_8", "user_task_11"],
    "dailylife": ["user_task_10"],
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PACKAGE.exists():
        pytest.skip(f"AgentDyn's package is not here ({PACKAGE.name})")
    folder = tmp_path_factory.mktemp("agentdyn")
    with tarfile.open(PACKAGE) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_the_tables_of_camel_and_fides_know_every_tool_and_argument(checkout: Path) -> None:
    bench = AgentDyn(str(checkout))
    for name in bench.suite_names():
        tools = {tool.name: set(tool.parameters.model_fields) for tool in bench.suite(name).tools}
        policies, rules, labels = (
            load_written_policies(name),
            load_written_rules(name),
            load_suite_labels(name),
        )
        assert policies is not None
        assert rules is not None
        assert labels is not None
        assert {*policies.free, *policies.rules} == set(tools)
        assert {*rules.free, *rules.policies} == set(tools)
        assert {*labels.tools, *rules.exposed.tools} <= set(tools)
        for tool, rule in policies.rules.items():
            assert {*rule.trusted, *rule.trusted_if_given, *rule.public} <= tools[tool]
        for tool, policy in rules.policies.items():
            assert set(policy.readers_are) <= tools[tool]


def test_the_checkout_is_the_known_commit_with_its_suites(checkout: Path) -> None:
    bench = AgentDyn(str(checkout))
    assert bench.version == "5353cf7"
    sizes = {
        name: (len(suite.user_tasks), len(suite.injection_tasks), len(suite.tools))
        for name in bench.suite_names()
        for suite in [bench.suite(name)]
    }
    assert sizes == {"shopping": (20, 9, 39), "github": (20, 9, 34), "dailylife": (20, 10, 27)}


@pytest.mark.slow
def test_a_way_is_known_to_every_task_but_those_whose_check_no_honest_agent_passes(checkout: Path) -> None:
    bench = AgentDyn(str(checkout))
    found = {}
    for name in bench.suite_names():
        suite = bench.suite(name)
        tasks = [*suite.user_tasks.values(), *suite.injection_tasks.values()]
        found[name] = [task.ID for task in tasks if suite.way(task) is None]
        plans = [task for task in tasks if task.ID in PLANS[name]]
        assert len(plans) == len(PLANS[name])
        assert all(_accept_plan(suite, task, PLANS[name][task.ID]) is not None for task in plans)
    assert found == UNSOLVED


def test_the_page_names_each_task_without_a_way(checkout: Path) -> None:
    page = (ROOT / "docs" / "agentdyn.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    for suite, tasks in UNSOLVED.items():
        numbers = [task.removeprefix("user_task_") for task in tasks]
        told = ", ".join(row.removeprefix(f"{suite} ") for row in rows if row.startswith(f"{suite} "))
        assert told == ", ".join(numbers)
    assert "52 of the 60 user tasks" in page


MINI = "gpt-4o-mini-2024-07-18"
TASKS = ["user_task_0", "user_task_2", "user_task_6"]
"""Those of each suite that are scored and replayed here; AGENTDYN_ALL=1 takes all twenty."""
CHANGED_WORLD = {
    ("github", "user_task_2", "injection_task_1"),
    ("github", "user_task_13", "injection_task_1"),
    ("github", "user_task_13", "injection_task_7"),
    ("shopping", "user_task_8", "injection_task_7"),
    ("shopping", "user_task_8", "injection_task_8"),
    ("shopping", "user_task_10", "injection_task_7"),
    ("shopping", "user_task_12", "injection_task_7"),
    ("shopping", "user_task_14", "injection_task_6"),
}
"""Carried out in a run of the pipeline before the recorded one: only the last run's messages are stored."""
CHANGED_TOOL = {("github", "user_task_1", "injection_task_7")}
"""The tool that pushes does another thing than it did."""


@pytest.mark.parametrize(
    ("archive", "benign", "useful", "attacks"),
    [
        (MINI, [7, 13, 8], [63, 82, 53], [52, 74, 160]),
        (f"{MINI}-progent", [0, 3, 1], [0, 18, 3], [6, 12, 42]),
        (f"{MINI}-drift", [2, 7, 2], [22, 58, 27], [2, 1, 17]),
    ],
)
def test_published_runs_are_counted_as_they_were_published(
    published: Callable[[str], Path], archive: str, benign: list[int], useful: list[int], attacks: list[int]
) -> None:
    found = read_cases([published(f"agentdyn-{archive}")]).cases
    rows = [row for row in found if row.user_task_id[0] == "u"]
    assert {row.benchmark for row in rows} == {"agentdyn"}
    for place, suite in enumerate(UNSOLVED):
        alone = [row for row in rows if row.suite == suite and row.injection_task_id is None]
        attacked = [row for row in rows if row.suite == suite and row.injection_task_id is not None]
        counted = sum(row.utility for row in alone), sum(row.utility for row in attacked)
        assert (len(alone), *counted) == (20, benign[place], useful[place])
        assert sum(bool(row.injection_success) for row in attacked) == attacks[place]


def chosen(folder: Path, tasks: Sequence[str] = TASKS) -> list[Path]:
    wanted = ["*"] if os.environ.get("AGENTDYN_ALL") else tasks
    return [path for task in wanted for path in sorted(folder.glob(f"*/*/{task}")) if path.is_dir()]


@pytest.mark.slow
def test_published_runs_are_scored_again_as_they_were(
    checkout: Path, published: Callable[[str], Path]
) -> None:
    folders = chosen(published(f"agentdyn-{MINI}"))
    found = rescore_records(folders, checkout=str(checkout))
    assert not found.skipped
    assert len(found.cases) >= 90
    flips = {
        (flip.score, flip.trajectory.suite, flip.trajectory.user_task_id, flip.trajectory.injection_task_id)
        for case in found.cases
        for flip in case.flips
    }
    expected = {("security", *case) for case in CHANGED_WORLD} | {("utility", *case) for case in CHANGED_TOOL}
    at_hand = {(folder.parent.name, folder.name) for folder in folders}
    assert flips == {flip for flip in expected if (flip[1], flip[2]) in at_hand}


@pytest.mark.slow
def test_published_runs_are_replayed_as_they_were(
    checkout: Path, published: Callable[[str], Path], tmp_path: Path
) -> None:
    traces = published(f"agentdyn-{MINI}")
    tasks = [] if os.environ.get("AGENTDYN_ALL") else [f"user_tasks=[{','.join(TASKS)}]"]
    outcome = prepare_session(
        [
            "benchmark=agentdyn",
            f"benchmark.source={checkout}",
            "model=replay",
            f"model.traces={traces}",
            "attack=none,important_instructions",
            f"logdir={tmp_path / 'runs'}",
            *tasks,
        ]
    ).execute(Silent())
    assert (outcome.finished, outcome.errors) == (620 if not tasks else 93, 0)
    differ = set()
    for path, ours in records_in(tmp_path / "runs").items():
        _, suite, task, attack, file = path.split("/")
        recorded = orjson.loads((traces / MINI / suite / task / attack / file).read_bytes())
        scores = ["utility"] if attack == "none" else ["utility", "security"]
        differ |= {(suite, task, file[:-5]) for score in scores if ours[score] != recorded[score]}
    at_hand = {case for case in CHANGED_WORLD | CHANGED_TOOL if not tasks or case[1] in TASKS}
    assert differ == at_hand
