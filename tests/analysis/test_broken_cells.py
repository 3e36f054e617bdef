"""Three folders whose runs were broken: every form of output gives the reason in place of their numbers."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from faulty_model import write_faulty_config
from matplotlib.text import Text

import agentsys
from agentsys.analysis.figures.figure_catalog import FIGURES
from agentsys.analysis.figures.figure_data import write_marks_csv

BROKEN = {
    "prose": ("camel", "agent unreadable"),
    "mute": ("prompt_sandwiching", "no tool call"),
    "echo": ("agentsys", "worker unreadable"),
}
"""Fault -> the defense it breaks, and why."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Fault -> the folder of a run with it, beside `none`."""
    root = tmp_path_factory.mktemp("broken")
    own_code = write_faulty_config(root / "conf")
    for fault, (defense, _) in BROKEN.items():
        command_output(
            *("run", *own_code, f"model.fault={fault}", f"defense=none,{defense}"),
            *(
                "attack=none,important_instructions",
                "benchmark.suites=[banking]",
                "limit_per_suite=4",
                f"logdir={root / fault}",
            ),
        )
    return {fault: root / fault for fault in BROKEN}


def _rows(text: str, defense: str, why: str) -> list[str]:
    """The rows of a broken defense: its reason stands below its name, on up to four lines."""
    lines = text.splitlines()
    below = [" ".join(" ".join(lines[at + 1 : at + 5]).split()) for at in range(len(lines))]
    name = re.compile(rf"(\S+ +(\(simulated\) +)?)?{defense}  ")
    return [
        line
        for line, more in zip(lines, below, strict=True)
        if name.match(line) and f"broken: {why}" in more.replace("(simulated) ", "")
    ]


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_cell_gives_its_reason_in_every_form_and_no_number(
    fault: str, folders: dict[str, Path]
) -> None:
    folder, (defense, why) = folders[fault], BROKEN[fault]
    screen = command_output("results", folder, columns=80)
    assert max(map(len, screen.splitlines())) <= 80
    assert not re.search(rf"^- .*\b{defense}\b", screen, re.M)  # no finding
    for text in (
        screen,
        command_output("results", folder, "--full", columns=80),
        command_output("table", "2", folder, columns=80),
        command_output("compare", folder, columns=80),
        command_output("results", folder, "--by", "cost", columns=80),
    ):
        found = _rows(text, defense, why)
        assert found, text
        for row in (row for row in found if "broken" in row):
            numbers = row.replace("v1.2.2", "")
            assert not re.search(r"\*|\d\.\d(?!x|\.)", numbers), row
    for form in ("markdown", "latex", "html"):
        assert f"broken: {why}" in command_output("results", folder, "--format", form)
    long_forms: list[list[dict[str, Any]]] = [
        json.loads(command_output("results", folder, "--format", "json")),
        json.loads(command_output("table", "2", folder, "--format", "json")),
        json.loads(command_output("compare", folder, "--format", "json"))["differences"],
        list(csv.DictReader(io.StringIO(command_output("results", folder, "--format", "csv")))),
    ]
    for rows in long_forms:
        ours = [row for row in rows if row["defense"] == defense and row["verdict"]]
        assert ours
        for one in ours:
            assert one["verdict"] == "broken" and one["reasons"].startswith(why)
            assert one.get("value_fraction", one.get("difference_fraction")) in (None, "")
    frame = agentsys.load_runs(folder)
    told = frame[frame.defense == defense]
    assert set(told.verdict) == {"broken"} and told.reasons.str.startswith(why).all()


def test_a_broken_cell_gives_its_reason_in_the_report_and_in_a_figure(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in FIGURES if name != "3"]:  # each takes a second to draw
        monkeypatch.delitem(FIGURES, name)
    folder, (defense, why) = folders["echo"], BROKEN["echo"]
    page = tmp_path / "page.html"
    command_output("report", folder, "--out", page)
    assert page.read_text(encoding="utf-8").count(f"broken: {why}") >= 3  # the table, the notes, the chart
    drawn = agentsys.figure("3", folder)
    marks = list(csv.DictReader(io.StringIO(write_marks_csv(drawn.figure_output.marks))))
    mine = [mark for mark in marks if (mark["series"], mark["origin"]) == (defense, "runs")]
    assert mine and all((mark["y"], mark["verdict"]) == ("", "broken") for mark in mine)
    words = {text.get_text() for text in drawn.figure.findobj(Text)}
    assert f"{defense}: broken: {why}." in " ".join(words)


@pytest.mark.parametrize("fault", ["prose", "echo"])
def test_the_valid_cell_beside_it_keeps_its_numbers_and_has_no_star_for_beating_it(
    fault: str, folders: dict[str, Path]
) -> None:
    rows = agentsys.results(folders[fault]).frame
    none = rows[(rows.defense == "none") & (rows.suite == "overall")]
    assert set(none.verdict) == {"valid"} and none.value_fraction.notna().all()
    assert not re.search(r"\d\*", command_output("results", folders[fault]))
