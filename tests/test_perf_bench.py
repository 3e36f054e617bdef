"""`make bench`: its tables, its place in perf/README.md, and that it asks only for what there is."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a module of perf/, which is no package."""
    monkeypatch.syspath_prepend(str(ROOT / "perf"))
    return importlib.import_module


def test_a_table_is_markdown_under_its_sentence(perf: Any) -> None:
    table = perf("bench_table").Table("Said.", ("A", "B"), [("1", "2")])
    assert table.text.splitlines() == ["Said.", "", "| A | B |", "| --- | --- |", "| 1 | 2 |"]
    assert perf("bench_table").Table("Not measured.").text == "Not measured."


def test_figures_are_written_between_the_marks_of_the_page_and_nowhere_else(
    perf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = perf("bench")
    page = tmp_path / "README.md"
    page.write_text(bench.README.read_text())
    monkeypatch.setattr(bench, "README", page)
    before, after = page.read_text().split(bench.BEGIN)[0], page.read_text().split(bench.END)[1]
    for text in ("first figures", "second figures"):
        bench.write(text)
    assert page.read_text() == f"{before}{bench.BEGIN}\n\nsecond figures\n\n{bench.END}{after}"


def test_every_way_to_run_that_is_measured_composes(perf: Any) -> None:
    from agentsys.runs.compose import compose

    kinds = perf("bench_throughput").KINDS
    assert kinds[0] == "threads"
    for kind in kinds:
        (found,) = compose(["model=simulated", *perf("sides").Executor(64, kind, 4).overrides])
        assert found.executor.workers == 64


def test_the_share_of_the_limit_is_of_workers_that_only_wait(perf: Any) -> None:
    sides = perf("sides")
    measured = sides.Measured(10, 2.0, 1.0, {"slack": 60, "banking": 20}, {})
    assert perf("throughput").limit_share(measured, sides.Executor(16), 200.0) == 0.5


def test_make_knows_the_command() -> None:
    assert "$(BIN)/python perf/bench.py" in (ROOT / "Makefile").read_text()
