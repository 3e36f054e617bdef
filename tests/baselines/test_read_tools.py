"""Defenses that read tools change no description of any suite that is shipped or fetched."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentsys.base.config_catalog import list_config_names
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.chat import Scene
from agentsys.models.pipeline_elements import tool_specs
from agentsys.runs.cell import CellBuilder
from agentsys.runs.compose import compose
from agentsys.runs.references import load_defense_config
from agentsys.runs.store import Store

SHARED = Path(__file__).parents[3] / "shared" / "data"
ATTACK_TOOLS = SHARED / "asb" / "all_attack_tools.jsonl"
DATA = {"agentdojo": None, "asb": ATTACK_TOOLS, "agentdyn": SHARED / "agentdyn" / "agentdyn-package.tar.gz"}
"""Benchmark -> where its data is, if not in a package."""
FLAGGED = {("control_middleware", "update_password")}
"""Defense and tool: the league's run of the middleware flags a text of which one sentence would be cut."""
CONTROLS = ("token_repetition", "length_alone")
"""Rows of the league that measure no injection, and flag what is long or says a word often."""


@pytest.fixture(scope="module")
def benchmark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    name, data = request.param, DATA[request.param]
    chosen = [f"benchmark={name}"]
    if data is None:
        return chosen
    if not data.exists():
        pytest.skip(f"the data of {name} is not here ({data.name})")
    if name == "asb":
        return [*chosen, f"benchmark.data={data.parent}"]
    folder = tmp_path_factory.mktemp(name)
    with tarfile.open(data) as packed:
        packed.extractall(folder, filter="data")
    return [*chosen, f"benchmark.source={folder}"]


def build_readers(benchmark: list[str], folder: Path, *, guards: bool) -> Iterator[tuple[str, Any]]:
    """Every shipped defense that can read tools, and does, where what it needs is installed.

    Args:
        benchmark: The settings that choose it.
        folder: For what is stored.
        guards: Whether those that ask a process of their own are among them.
    """
    GuardDefense = pytest.importorskip("agentsys_plugins.guards.guard_defense").GuardDefense
    # Composed once: the benchmark with its script is then made once, too, for all defenses.
    (plain,) = compose(["model=simulated", f"logdir={folder}", "defense=none", *benchmark])
    builder = CellBuilder(Store(folder))
    for name in list_config_names("defense"):
        chosen = {**load_defense_config(name), "read_tools": True}
        settings = plain.model_copy(update={"defense": chosen, "labels": {**plain.labels, "defense": name}})
        try:
            cell = builder.build(settings)
            cell.defense.ready()
        except Unavailable:
            continue
        except ConfigError as error:
            assert "reads no descriptions of tools" in str(error), name
            continue
        assert cell.defense.reads_tools
        if guards or not isinstance(cell.defense, GuardDefense):
            yield name, cell


@pytest.mark.parametrize(
    ("benchmark", "guards"),
    [("agentdojo", False), *(pytest.param(name, True, marks=pytest.mark.slow) for name in DATA)],
    indirect=["benchmark"],
)
def test_no_description_of_a_suite_is_changed(benchmark: list[str], guards: bool, tmp_path: Path) -> None:
    read, changed = 0, set[tuple[str, str]]()
    for name, cell in build_readers(benchmark, tmp_path, guards=guards):
        read += 1
        for suite_name in cell.benchmark.suite_names():
            suite = cell.benchmark.suite(suite_name)
            model = cell.stack.for_scene(Scene(suite_name, "user_task_0", None, "none"))
            given = cell.defense.read_tools(suite.tools, suite, model)
            pairs = zip(tool_specs(given), tool_specs(suite.tools), strict=True)
            changed |= {(name, own.name) for left, own in pairs if left != own}
    # What stands for the attacker's own tools in ASB's suites is no one's description of a tool to use.
    listed = ATTACK_TOOLS.read_text(encoding="utf-8") if ATTACK_TOOLS.exists() else ""
    attacks = {json.loads(line)["Attacker Tool"] for line in listed.splitlines()}
    assert {one for one in changed if one[1] not in attacks and one[0] not in CONTROLS} <= FLAGGED
    assert read >= 20
