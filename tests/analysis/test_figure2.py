"""Figure 2 from stored runs: a panel per mode, controls small, versions and attack types apart."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml
from asb_cases import AGENTS, TOOLS, attacked, benign, control, grid
from typer.testing import CliRunner

from agentsys.analysis.figures.catalog import FIGURES, make_figure
from agentsys.analysis.figures.drawn import Drawn
from agentsys.analysis.figures.mark import PAPER, RUNS, Mark
from agentsys.cli import app
from agentsys.extensions import shipped_config_dir
from agentsys.records.case_row import CaseRow


def _controls(hits: str = "", **fields: Any) -> list[CaseRow]:
    return [control(a, t, hit=a in hits, **fields) for a in AGENTS for t in range(TOOLS)]


def _ours(drawn: Drawn) -> dict[tuple[str, str], Mark]:
    return {(mark.panel, mark.series): mark for mark in drawn.marks if mark.origin == RUNS}


def _words(drawn: Drawn) -> str:
    return " ".join([drawn.figure.get_suptitle(), drawn.figure.get_supxlabel()]).replace("\n", " ")


def test_each_mode_has_a_panel_with_attacks_and_controls() -> None:
    cases = [
        *grid({"a": 8}, defense="none"),
        *_controls("b", defense="none"),
        *grid({"a": 8, "b": 8}, defense="none", benchmark="asb-react"),
        *[benign(agent) for agent in AGENTS],
    ]
    drawn = make_figure(FIGURES["2"], cases)
    assert {key: mark.x for key, mark in _ours(drawn).items()} == {
        ("faithful", "none"): 10.0,
        ("faithful: control", "none"): 10.0,
        ("react", "none"): 20.0,
    }
    assert [axes.get_title(loc="left") for axes in drawn.figure.axes] == ["faithful", "react"]
    assert "Small, below: the control" in _words(drawn)


def test_the_papers_value_stands_hollow_beside_the_published_conversation() -> None:
    drawn = make_figure(FIGURES["2"], [*grid({}, benchmark="asb-react"), *grid({})])
    (printed,) = [mark for mark in drawn.marks if mark.origin == PAPER]
    assert (printed.panel, printed.series, printed.x) == ("faithful", "agentsys", 4.25)
    assert "neither the attack type nor the number of cases" in _words(drawn)


def test_runs_without_a_control_are_said_to_lack_it() -> None:
    assert "No control (empty payload) was run" in _words(make_figure(FIGURES["2"], grid({})))


def test_data_sets_are_never_averaged_even_where_their_agents_differ() -> None:
    other = [attacked("z", t, hit=True, version="v1-d6c1d214") for t in range(TOOLS)]
    marks = _ours(make_figure(FIGURES["2"], [*grid({}), *other]))
    assert {name: mark.x for (_, name), mark in marks.items()} == {
        "agentsys, sample": 0.0,
        "agentsys, v1-d6c1d214": 100.0,
    }


def test_the_preset_has_the_papers_defenses_in_two_modes_with_controls() -> None:
    preset = yaml.safe_load((shipped_config_dir() / "experiment" / "figure2.yaml").read_text())
    assert preset["sweep"] == {
        "model": ["gpt-4o-mini"],
        "benchmark.mode": ["faithful", "react"],
        "defense": [
            "none",
            "spotlighting",
            "delimiters",
            "prompt_sandwiching_in_result",
            "instructional_prevention",
            "drift",
            "melon",
            "agentsys",
        ],
        "attack": ["none", "opi_context_ignoring", "opi_empty"],
    }


@pytest.mark.slow
def test_the_figure_is_drawn_from_runs_of_the_preset(tmp_path: Path) -> None:
    def invoke(*arguments: str) -> str:
        outcome = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert outcome.exit_code == 0, outcome.output
        return outcome.stdout

    runs, out = tmp_path / "runs", tmp_path / "out"
    few = ("defense=none", "attack=opi_context_ignoring,opi_empty", "limit=1")
    invoke("run", "+experiment=figure2", "model=simulated", f"logdir={runs}", *few)
    names = [
        Path(line).name for line in invoke("figure", "2", "--runs", str(runs), "--out", str(out)).split()
    ]
    assert names == ["figure2.pdf", "figure2.png", "figure2.csv"]
    rows = [r for r in csv.DictReader((out / "figure2.csv").open()) if r["origin"] == RUNS]
    found = {(r["panel"], r["series"]): float(r["x"]) for r in rows}
    assert found["faithful", "none"] == found["react", "none"] == 100.0
    assert {found[f"{mode}: control", "none"] for mode in ("faithful", "react")} == {0.0}
