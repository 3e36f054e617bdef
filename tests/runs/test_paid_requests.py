"""Every request that a server billed is in the case's record and in the run's ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from paid_server import USD, Answer, calls, fails, paid_model, paid_server, says
from small_runs import Silent
from typer.testing import CliRunner

from agentsys.base.ledger import LedgerEntry, LedgerTotals, read_ledger, sum_ledgers
from agentsys.cli import app
from agentsys.runs.run_session import prepare_session

ONE_CASE = ["model=paid", "benchmark.suites=[slack]", "user_tasks=[0]", "defense=none"]


def run(tmp_path: Path, conf: Path, *more: str) -> Any:
    prepare_session([*ONE_CASE, *more, f"logdir={tmp_path / 'runs'}"], config_dirs=[conf]).execute(
        listener := Silent()
    )
    return listener.records[-1] if listener.records else None


def booked(tmp_path: Path) -> list[LedgerEntry]:
    return list(read_ledger(tmp_path / "runs" / ".agentsys" / "ledger.jsonl"))


def test_paid_answers_that_cannot_be_used_are_in_record_and_ledger(tmp_path: Path) -> None:
    with paid_server(lambda _, __: calls("get_channels", '{"a": <>')) as server:
        record = run(tmp_path, paid_model(tmp_path, server.url))
    assert (record.status, record.error_kind, server.billed) == ("error", "malformed_reply", 4)
    usage = record.usage["agent"]
    assert (usage.calls, usage.requests, usage.prompt, usage.completion) == (0, 4, 4000, 2000)
    assert usage.cost_usd == 4 * USD
    (call,) = [call for span in record.spans for call in span.calls]
    assert (call.error, call.attempts) == ("malformed_reply", 4)
    assert [(e.error, e.cost_usd, e.case) for e in booked(tmp_path)] == [
        ("malformed_reply", USD, record.case.key)
    ] * 4


def test_what_a_retry_survived_is_part_of_the_case(tmp_path: Path) -> None:
    answers = [calls("get_channels", '{"a": <>'), says(""), fails(500), says()]
    with paid_server(lambda n, _: answers[n - 1]) as server:
        record = run(tmp_path, paid_model(tmp_path, server.url))
    assert (record.status, server.billed) == ("ok", 3)
    assert record.usage["agent"].cost_usd == 3 * USD
    assert record.usage["agent"].requests == 4
    # An empty answer is one that can be used: some models say nothing.
    assert [entry.error for entry in booked(tmp_path)] == ["malformed_reply", None, "server_error", None]


def test_earlier_attempts_of_a_case_that_is_run_again_stay_in_the_ledger(tmp_path: Path) -> None:
    def answer(number: int, _: object) -> Answer:
        return {1: calls("get_channels", "{}"), 2: fails(400)}.get(number, says())

    with paid_server(answer) as server:
        conf = paid_model(tmp_path, server.url)
        assert run(tmp_path, conf).status == "error"
        record = run(tmp_path, conf)
        assert record.status == "ok"
        assert (len(server.asked), server.billed) == (3, 2)
    # The first answer came from the cache the second time; it was paid for once.
    assert record.usage["agent"].cost_usd == USD
    assert sum_ledgers([tmp_path / "runs"]) == LedgerTotals(3, 1, 3000, 2 * USD)


@pytest.mark.parametrize("command", [["results"], ["results", "--by", "cost"]])
def test_tables_state_what_the_ledger_says(command: list[str], tmp_path: Path) -> None:
    with paid_server(lambda n, _: fails(500) if n == 1 else says()) as server:
        run(tmp_path, paid_model(tmp_path, server.url))
    shown = CliRunner().invoke(app, [*command, str(tmp_path / "runs")]).output
    assert "Sent in all, by the ledger: 2 requests, 1,500 tokens, $2.00" in " ".join(shown.split())


def test_a_scripted_model_sends_nothing(tmp_path: Path) -> None:
    chosen = ["model=simulated", *ONE_CASE[1:], f"logdir={tmp_path / 'runs'}"]
    prepare_session(chosen).execute(Silent())
    assert booked(tmp_path) == []
    (path,) = (tmp_path / "runs").rglob("none.json")
    assert orjson.loads(path.read_bytes())["agentsys"]["status"] == "ok"
