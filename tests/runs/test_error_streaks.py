"""A server that dies ends the run after ten cases in a row, resumably, and the display says why."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from paid_server import Answer, calls, fails, paid_model, paid_server, says
from rich.console import Console
from small_runs import Silent

from agentsys.base.ledger import read_ledger
from agentsys.cli.run_progress import LiveProgress, PlainProgress, RunningTotals
from agentsys.errors import ConfigError
from agentsys.models.budget import Meter
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session
from agentsys.runs.run_totals import RunOutcome

SLACK = ["model=paid", "defense=none", "benchmark.suites=[slack]", "preflight=false", "executor.workers=1"]
HASTY: dict[str, Any] = {"retry": {"attempts": 1}}
FILTERED = 400, {"error": {"message": "no", "code": "content_filter"}}
TOO_LONG = 400, {"error": {"message": "no", "code": "context_length_exceeded"}}
PAGE: Answer = 200, {}


def run(tmp_path: Path, answer: Any, *more: str) -> tuple[RunOutcome, Silent, str]:
    with paid_server(answer) as server:
        return run_at(server.url, tmp_path, *more)


def run_at(url: str, tmp_path: Path, *more: str) -> tuple[RunOutcome, Silent, str]:
    chosen = [*SLACK, *more, f"logdir={tmp_path / 'runs'}"]
    session = prepare_session(chosen, config_dirs=[paid_model(tmp_path, url, **HASTY)])
    assert session.usage_log is not None
    return session.execute(listener := Silent()), listener, session.usage_log.meter.last_error


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (fails(500), "server_error"),
        (fails(503), "overloaded"),
        (fails(429), "rate_limited"),
        (PAGE, "malformed_reply"),
    ],
)
def test_a_run_stops_after_ten_cases_in_a_row_and_goes_on_where_it_stopped(
    answer: Answer, kind: str, tmp_path: Path
) -> None:
    with paid_server(lambda n, _: answer if 3 < n <= 13 else says()) as server:
        outcome, _, last = run_at(server.url, tmp_path)
        again, others, _ = run_at(server.url, tmp_path)
    assert outcome.fatal is not None
    assert outcome.fatal.startswith(f"10 cases of paid in a row ended in {kind}: {kind}: ")
    assert "budget.errors" in outcome.fatal and last.startswith(f"{kind}: ")
    assert (outcome.finished, outcome.errors) == (13, 10)
    assert (again.fatal, again.errors, len(others.records)) == (None, 0, 21 - 3)


@pytest.mark.parametrize("answer", [FILTERED, TOO_LONG, fails(400)])
def test_what_a_case_itself_causes_never_stops_a_run(answer: Answer, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, lambda *_: answer, "budget.errors=2")
    assert (outcome.fatal, outcome.errors) == (None, 21)


@pytest.mark.parametrize("between", [says(), FILTERED, fails(500)])
def test_anything_else_between_begins_the_row_anew(between: Answer, tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, lambda n, _: between if n % 5 == 0 else fails(503), "budget.errors=5")
    assert outcome.fatal is None and outcome.finished == 21


def test_a_share_counts_from_the_tenth_case_on(tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, lambda n, _: fails(503) if n % 2 else says(), "budget.errors=0.5")
    assert outcome.fatal is not None and outcome.finished == 11
    assert outcome.fatal.startswith("6 of 11 cases of paid ended in overloaded: ")


def test_without_a_number_a_run_goes_to_its_end(tmp_path: Path) -> None:
    outcome, _, _ = run(tmp_path, lambda *_: fails(503), "budget.errors=null")
    assert (outcome.fatal, outcome.errors) == (None, 21)


def test_a_model_that_is_refused_ends_its_cell_with_the_servers_words(tmp_path: Path) -> None:
    refused = (
        403,
        {"error": {"message": "Country not supported", "code": "unsupported_country_region_territory"}},
    )
    outcome, listener, _ = run(tmp_path, lambda *_: refused, "defense=none,prompt_sandwiching")
    assert outcome.fatal is None
    assert [(cell.labels.defense, cell.left) for cell in outcome.ended_cells] == [
        ("none", 20),
        ("prompt_sandwiching", 20),
    ]
    assert all("Country not supported" in cell.why for cell in outcome.ended_cells)
    assert {record.error_kind for record in listener.records} == {"forbidden"}


@pytest.mark.parametrize("value", ["0", "-1", "x"])
def test_a_limit_of_errors_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="errors"):
        compose(["model=simulated", f"budget.errors={value}"])


def test_the_limit_of_errors_is_no_identity() -> None:
    (one,), (other,) = compose(["model=simulated", "budget.errors=3"]), compose(["model=simulated"])
    assert one.config_hash == other.config_hash


@pytest.mark.parametrize("kind", [LiveProgress, PlainProgress])
def test_the_display_says_what_the_last_error_was(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsys.cli.run_progress.LINE_EVERY_S", -1.0)
    meter = Meter(last_error="overloaded: HTTP 503: \x1b[31mbusy")
    console = Console(file=io.StringIO(), width=200, force_terminal=kind is LiveProgress)
    with kind(RunningTotals(3), console, meter) as display:
        display.on_tick()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "last error: overloaded: HTTP 503:" in shown and "\x1b[31mbusy" not in shown
    assert not re.search(r"last error", _shown_without_error(kind))


def _shown_without_error(kind: Any) -> str:
    console = Console(file=io.StringIO(), width=200, force_terminal=kind is LiveProgress)
    with kind(RunningTotals(3), console, Meter()) as display:
        display.on_tick()
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_request_that_reaches_the_server_is_in_the_ledger_and_the_budget(tmp_path: Path) -> None:
    with paid_server(lambda n, _: calls("get_channels", "{}") if n % 4 == 1 else says("Read")) as server:
        conf = paid_model(tmp_path, server.url, cache=False)
        chosen = [*SLACK, "defense=drift", "user_tasks=[0]", f"logdir={tmp_path / 'runs'}"]
        session = prepare_session(chosen, config_dirs=[conf])
        session.execute(Silent())
        assert session.usage_log is not None
        sent = len(server.asked)
    booked = list(read_ledger(tmp_path / "runs" / ".agentsys" / "ledger.jsonl"))
    assert len(booked) == sent
    assert any(entry.case == "" for entry in booked)  # what was asked of tools, once for all cases
    assert session.usage_log.meter.tokens == sum(entry.prompt + entry.completion for entry in booked)
