"""Budgets of a run and of a case; and every request that a server billed is in the record and in the ledger."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from paid_server import USD, Answer, calls, fails, paid_model, paid_server, says
from small_runs import Silent, records_in
from typer.testing import CliRunner

from agentsys.base.ledger import LedgerEntry, LedgerTotals, read_ledger, sum_ledgers
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.budget import Budget, Meter, RunBudgetReached, UsageLog
from agentsys.models.chat import ChatRequest, Usage, user
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import MeteredModel
from agentsys.runs.run_session import prepare_session
from agentsys.runs.run_totals import RunOutcome

SLACK = ["benchmark.suites=[slack]", "defense=none"]


def test_a_meter_has_room_up_to_its_budget() -> None:
    meter = Meter(Budget(usd=3.0, tokens=100))
    assert meter.has_room(3.0, 100) and not meter.has_room(3.1) and not meter.has_room(tokens=101)
    meter.add_usage(Usage(prompt=60, completion=39), 2.0)
    assert meter.has_room(1.0, 1) and not meter.has_room(1.1)
    meter.add_usage(Usage(prompt=1), None)
    assert not meter.has_room()
    assert meter.limit_message.startswith("budget.usd=3 ($2.00 spent) and budget.tokens=100 (100 used)")
    assert Meter().has_room(1e9, 1e12)


def test_nothing_is_sent_once_the_budget_is_used_up() -> None:
    class Never:
        name = "never"

        def complete(self, request: ChatRequest) -> Any:
            raise AssertionError("was asked")

    meter = Meter(Budget(tokens=1), tokens=1)
    with use_tracer(Tracer(usage_log=UsageLog(meter))), pytest.raises(RunBudgetReached):
        MeteredModel(Never()).complete(ChatRequest([user("Hi")]))
    assert not issubclass(RunBudgetReached, Exception)  # no defense takes it for a failure of the model


def run(folder: Path, overrides: list[str], confs: list[Path]) -> tuple[RunOutcome, Silent]:
    session = prepare_session([*SLACK, *overrides, f"logdir={folder}"], config_dirs=confs)
    return session.execute(listener := Silent()), listener


@pytest.mark.parametrize("workers", [1, 8])
def test_a_run_ends_within_a_case_of_its_budget_and_goes_on(tmp_path: Path, workers: int) -> None:
    """A case takes three answers of $2; eight cases side by side would be $48."""
    order = threading.Lock()
    turns: dict[str, int] = {}

    def answer(_: int, body: dict[str, Any]) -> Answer:
        task = str(next(m["content"] for m in body["messages"] if m["role"] == "user"))
        with order:
            turns[task] = turns.get(task, 0) + 1
            return calls("get_channels", "{}") if turns[task] < 3 else says()

    with paid_server(answer) as server:
        conf = paid_model(tmp_path, server.url)
        chosen = ["model=paid", "budget.usd=20", f"executor.workers={workers}"]
        outcome, first = run(tmp_path / "runs", chosen, [conf])
        spent = server.billed * USD
        assert outcome.budget is not None and "budget.usd=20" in outcome.budget
        assert (outcome.fatal, outcome.errors) == (None, 0)
        assert 20 - 3 * USD <= spent <= 20 + 3 * USD
        assert 2 <= len(first.records) < 21
        # The same command goes on, with a budget as large again; nothing is run or paid for twice.
        outcome, second = run(tmp_path / "runs", ["model=paid", "budget.usd=1000"], [conf])
        assert outcome.budget is None
    assert len(first.records) + len(second.records) == 21
    assert server.billed == 21 * 3


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {"prompt_tokens": -5, "completion_tokens": 2},
        {"prompt_tokens": "12", "completion_tokens": "3"},
        {"prompt_tokens": 1e18, "completion_tokens": 1},
        {"prompt_tokens": 10**18, "completion_tokens": 1},
    ],
)
@pytest.mark.parametrize("usable", [True, False])
def test_replies_that_cannot_be_counted_are_booked_at_their_worst_and_end_the_run(
    usage: Any, usable: bool, tmp_path: Path
) -> None:
    def answer(*_: object) -> Answer:
        status, data = says() if usable else (200, {"choices": [{"nothing": "here"}]})
        return status, {**data, "usage": usage}

    with paid_server(answer) as server:
        price = {"prompt": 1.0, "completion": 2.0, "as_of": "2025-01-01"}
        conf = paid_model(tmp_path, server.url, price=price, max_tokens=5_000)
        chosen = ["model=paid", "budget.usd=0.1", "executor.workers=4"]
        outcome, _ = run(tmp_path / "runs", chosen, [conf])
        assert outcome.budget is not None and "replies without a count of tokens are in it" in outcome.budget
        # 5,000 tokens of reply are 1 cent, the prompt's bytes a little more.
        assert 3 <= len(server.asked) <= 10


@pytest.mark.parametrize("limit", ["budget.case_tokens=500", "budget.case_seconds=0.000001"])
def test_a_case_above_its_budget_is_an_error_of_its_own_kind(limit: str, tmp_path: Path) -> None:
    outcome, listener = run(tmp_path / "runs", ["model=simulated", "user_tasks=[1]", limit], [])
    (record,) = listener.records
    assert (record.status, record.error_kind) == ("error", "case_budget")
    assert (outcome.fatal, outcome.budget) == (None, None)
    (stored,) = records_in(tmp_path / "runs").values()
    assert limit.split("=")[0] in stored["error"]


def test_a_defense_that_survives_model_errors_does_not_survive_its_case_budget(tmp_path: Path) -> None:
    chosen = ["model=simulated", "defense=agentsys", "user_tasks=[1]", "budget.case_tokens=5000"]
    _, listener = run(tmp_path / "runs", chosen, [])
    assert listener.records[0].error_kind == "case_budget"


def test_dollars_of_a_model_without_a_price_cannot_be_a_budget(tmp_path: Path) -> None:
    conf = paid_model(tmp_path, "http://127.0.0.1:9/v1", price=None)
    with pytest.raises(ConfigError, match=r"budget.usd needs a price.*'paid'.*budget.tokens"):
        prepare_session(
            [*SLACK, "model=paid", "budget.usd=1", f"logdir={tmp_path / 'runs'}"], config_dirs=[conf]
        )


def test_a_budget_holds_for_a_whole_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hold for a whole run"):
        prepare_session([*SLACK, "model=simulated", "budget.usd=1,2", f"logdir={tmp_path / 'runs'}"])


ONE_CASE = ["model=paid", "benchmark.suites=[slack]", "user_tasks=[0]", "defense=none"]


def run_one_case(tmp_path: Path, conf: Path, *more: str) -> Any:
    prepare_session([*ONE_CASE, *more, f"logdir={tmp_path / 'runs'}"], config_dirs=[conf]).execute(
        listener := Silent()
    )
    return listener.records[-1] if listener.records else None


def booked(tmp_path: Path) -> list[LedgerEntry]:
    return list(read_ledger(tmp_path / "runs" / ".agentsys" / "ledger.jsonl"))


def test_paid_answers_that_cannot_be_used_are_in_record_and_ledger(tmp_path: Path) -> None:
    with paid_server(lambda _, __: calls("get_channels", '{"a": <>')) as server:
        record = run_one_case(tmp_path, paid_model(tmp_path, server.url))
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
        record = run_one_case(tmp_path, paid_model(tmp_path, server.url))
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
        assert run_one_case(tmp_path, conf).status == "error"
        record = run_one_case(tmp_path, conf)
        assert record.status == "ok"
        assert (len(server.asked), server.billed) == (3, 2)
    # The first answer came from the cache the second time; it was paid for once.
    assert record.usage["agent"].cost_usd == USD
    assert sum_ledgers([tmp_path / "runs"]) == LedgerTotals(3, 1, 3000, 2 * USD)


@pytest.mark.parametrize("command", [["results"], ["results", "--by", "cost"]])
def test_tables_state_what_the_ledger_says(command: list[str], tmp_path: Path) -> None:
    with paid_server(lambda n, _: fails(500) if n == 1 else says()) as server:
        run_one_case(tmp_path, paid_model(tmp_path, server.url))
    shown = CliRunner().invoke(app, [*command, str(tmp_path / "runs")]).output
    assert "Sent in all, by the ledger: 2 requests, 1,500 tokens, $2.00" in " ".join(shown.split())


def test_a_scripted_model_sends_nothing(tmp_path: Path) -> None:
    chosen = ["model=simulated", *ONE_CASE[1:], f"logdir={tmp_path / 'runs'}"]
    prepare_session(chosen).execute(Silent())
    assert booked(tmp_path) == []
    (path,) = (tmp_path / "runs").rglob("none.json")
    assert orjson.loads(path.read_bytes())["agentsys"]["status"] == "ok"
