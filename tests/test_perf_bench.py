"""`make bench`: its tables, its place in perf/README.md, and that it asks only for what there is."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
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
    before, rest = page.read_text().split("<!-- bench: cpu -->")
    after = rest.split("<!-- bench: cpu ends -->")[1]
    for text in ("first figures", "second figures"):
        bench.write("cpu", text)
    expected = "<!-- bench: cpu -->\n\nsecond figures\n\n<!-- bench: cpu ends -->"
    assert page.read_text() == f"{before}{expected}{after}"


def test_figures_of_another_part_make_no_other_commit(
    perf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = perf("bench")
    page, code = tmp_path / "perf" / "README.md", tmp_path / "code.py"
    page.parent.mkdir()
    monkeypatch.setattr(bench, "README", page)

    def git(*arguments: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True)

    for path in (page, code):
        path.write_text("before")
    git("init")
    git("add", ".")
    git("commit", "-m", "all")
    at = bench.commit()
    page.write_text("figures")
    assert bench.commit() == at and at
    code.write_text("after")
    assert bench.commit() == f"{at}-dirty"


def test_each_part_has_its_place_in_the_page(perf: Any) -> None:
    bench = perf("bench")
    page = bench.README.read_text()
    assert all(
        page.count(f"<!-- bench: {part}{end} -->") == 1 for part in bench.PARTS for end in ("", " ends")
    )


def test_the_share_of_the_limit_is_of_workers_that_only_wait(perf: Any) -> None:
    sides = perf("sides")
    measured = sides.Measured(10, 2.0, 1.0, {"slack": 60, "banking": 20}, {})
    assert perf("throughput").limit_share(measured, sides.Executor(16), 200.0) == 0.5


def test_the_share_of_the_cpus_counts_client_and_server(perf: Any) -> None:
    throughput = perf("throughput")
    measured = perf("sides").Measured(10, 2.0, 1.0 * throughput.CORES, {"slack": 60}, {})
    assert throughput.cpu_share(measured, 0.5 * throughput.CORES) == pytest.approx(0.75)


def test_the_server_answers_what_it_has_learnt_without_the_model(perf: Any) -> None:
    served_model = perf("served_model")

    async def asked() -> list[bytes]:
        replies = served_model.Replies(port=0)
        replies._asked = lambda path, body: (200, b"reply " + body)
        return [await replies.reply("/v1/x", body) for body in (b"a", b"b", b"a")] + [
            str(replies.passed_on).encode()
        ]

    assert asyncio.run(asked()) == [b"reply a", b"reply b", b"reply a", b"2"]


def test_make_knows_the_command() -> None:
    assert "$(BIN)/python perf/bench.py" in (ROOT / "Makefile").read_text()
