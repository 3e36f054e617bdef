"""The public functions do what the commands of their names do."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from command_output import command_output
from small_runs import records_in

import agentsys
import agentsys.plugins
from agentsys.analysis.figures.figure_catalog import FIGURES
from agentsys.errors import ConfigError

OVERRIDES = (
    "model=simulated model.reader=literal defense=none,prompt_sandwiching,agentsys attack=none,important_instructions"
    " benchmark.suites=[banking] user_tasks=[0,1] injection_tasks=[0,1] executor.workers=2"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> agentsys.Run:
    return agentsys.run(f"{OVERRIDES} logdir={tmp_path_factory.mktemp('api')}")


def test_run_says_what_it_did_and_does_nothing_twice(run: agentsys.Run) -> None:
    assert (run.planned, run.finished, run.errors, run.ended) == (18, 18, 0, None)
    again = agentsys.run([*OVERRIDES.split(), f"logdir={run.folders[0].parent}"])
    assert (again.planned, again.finished) == (18, 0)
    assert len(run.cases()) == 18
    assert set(run.cases()["defense"]) == {"none", "prompt_sandwiching", "agentsys"}


@pytest.mark.slow
def test_run_gives_the_records_of_the_command(run: agentsys.Run, tmp_path: Path) -> None:
    words = [*OVERRIDES.split(), f"logdir={tmp_path / 'runs'}"]
    subprocess.run([sys.executable, "-m", "agentsys", "run", *words], check=True, capture_output=True)
    assert records_in(tmp_path / "runs") == records_in(run.folders[0].parent)


def test_results_are_those_of_the_command_from_folders_and_from_a_frame(run: agentsys.Run) -> None:
    shown = agentsys.results(run.folders)
    printed = command_output("results", *run.folders, "--format", "csv").splitlines()
    assert printed[0].split(",") == list(shown.frame.columns)
    assert len(printed) - 1 == len(shown.frame)
    assert command_output("results", *run.folders, "--format", "markdown") == shown.markdown()
    assert command_output("results", *run.folders, "--format", "latex") == shown.latex()
    pd.testing.assert_frame_equal(agentsys.results(run.cases()).frame, shown.frame)
    assert "prompt_sandwiching" in str(shown)
    assert "<table" in shown._repr_html_()


def test_compare_is_the_command_in_both_directions(run: agentsys.Run) -> None:
    shown = agentsys.compare(run.folders, metrics=["targeted_asr"])
    overall = shown.frame[(shown.frame["suite"] == "overall") & (shown.frame["defense"] == "agentsys")]
    assert set(overall["difference_fraction"]) == {-1.0}
    turned = agentsys.compare(run.cases(), baseline="agentsys", metrics=["targeted_asr"]).frame
    back = turned[(turned["suite"] == "overall") & (turned["defense"] == "none")]
    assert set(back["difference_fraction"]) == {1.0}
    flips = shown.flips[shown.flips["defense"] == "agentsys"]
    assert len(flips) == 4 and not flips["gained"].any()
    assert all(Path(file).is_file() for file in flips["file"])


def test_the_report_is_the_page_of_the_command(
    run: agentsys.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in FIGURES if name != "3"]:  # each takes a second to draw
        monkeypatch.delitem(FIGURES, name)
    page = agentsys.report(run.folders, tmp_path / "new" / "mine.html")
    command_output("report", *run.folders, "--out", tmp_path / "theirs.html")
    made_on = re.compile(r"20\d\d-\d\d-\d\d \d\d:\d\d")
    ours, theirs = (made_on.sub("", path.read_text("utf-8")) for path in (page, tmp_path / "theirs.html"))
    assert ours == theirs
    assert ours.count("data:image/svg+xml;base64,") == 2  # the rates, and Figure 3


def test_a_table_of_the_paper_has_printed_numbers_beside_ours(run: agentsys.Run) -> None:
    shown = agentsys.table(2, run.folders)
    printed = command_output("table", 2, *run.folders, "--format", "csv").splitlines()
    assert printed[0].split(",") == list(shown.frame.columns)
    assert len(printed) - 1 == len(shown.frame)
    assert shown.frame["paper_fraction"].notna().sum() > 20
    assert shown.frame["simulated"].any()


def test_a_figure_is_saved_with_its_numbers(run: agentsys.Run, tmp_path: Path) -> None:
    drawing = agentsys.figure(3, run.folders)
    assert [path.name for path in drawing.save(tmp_path)] == ["figure3.pdf", "figure3.png", "figure3.csv"]
    assert len((tmp_path / "figure3.csv").read_text().splitlines()) == len(drawing.frame) + 1
    assert drawing._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda folders: agentsys.table(8, folders), "Unknown table '8'"),
        (lambda folders: agentsys.figure("tokns", folders), "Did you mean tokens"),
        (lambda folders: agentsys.compare(folders, baseline="nine"), "nine"),
        (lambda folders: agentsys.results("nowhere"), "nowhere"),
        (lambda folders: agentsys.results(folders, errors="reprot"), "Did you mean report"),
    ],
)
def test_a_slip_is_one_line_with_the_mend(run: agentsys.Run, slip: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        slip(run.folders)
    assert "\n" not in str(caught.value)


def test_importing_the_package_imports_neither_benchmark_nor_sdk_nor_pandas() -> None:
    heavy = "agentdojo openai anthropic pandas matplotlib hydra rich"
    code = f"import sys, agentsys; print([n for n in {heavy.split()} if n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_every_public_name_is_there_and_explained() -> None:
    for module in (agentsys, agentsys.plugins):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isfunction(found):
                assert inspect.getdoc(found), name
    with pytest.raises(AttributeError, match="resluts"):
        agentsys.resluts  # noqa: B018
