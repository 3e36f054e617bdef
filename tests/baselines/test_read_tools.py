"""Defenses that read tools change no description of a shipped suite."""

from __future__ import annotations

from typing import Any

import pytest

from agentsys.abilities import ReadsTools
from agentsys.models.chat import Scene
from agentsys.runs.cell import CellBuilder
from agentsys.runs.compose import compose
from agentsys.runs.store import Store

READERS = ("phrase_detector", "promptarmor", "firewall_sanitizer", "datafilter", "middleware")


@pytest.mark.parametrize("defense", READERS)
def test_no_description_of_a_shipped_suite_is_changed(defense: str, tmp_path: Any) -> None:
    base = ["model=simulated", f"logdir={tmp_path}"]
    (settings,) = compose([*base, f"defense={defense}", "defense.read_tools=true"])
    cell = CellBuilder(Store(tmp_path)).build(settings)
    assert isinstance(cell.defense, ReadsTools) and cell.defense.reads_tools
    for name in cell.benchmark.suite_names():
        suite = cell.benchmark.suite(name)
        model = cell.stack.for_scene(Scene(name, "user_task_0", None, "none"))
        read = cell.defense.read_tools(suite.tools, suite, model)
        assert all(one is own for one, own in zip(read, suite.tools, strict=True))
