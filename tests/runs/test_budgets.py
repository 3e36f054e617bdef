"""Budgets of a run, of a case and of commands on one log folder; whatever a server billed is in record and ledger."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from paid_server import USAGE, USD, Answer, calls, fails, paid_model, paid_server, says
from small_runs import Silent, records_in
from typer.testing import CliRunner

from agentsys.base.atomic_file import CAN_LOCK
from agentsys.base.ledger import LedgerEntry, LedgerTotals, read_ledger, sum_ledgers
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models import budget
from agentsys.models.budget import (
    DEAD_AFTER_S,
    Account,
    Amount,
    Budget,
    BudgetFile,
    Meter,
    RunBudgetReached,
    UsageLog,
)
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


UNUSABLE: Answer = (
    200,
    {"model": "paid-1", "usage": USAGE, "choices": [{"message": "none", "finish_reason": "stop"}]},
)
"""Paid for, and no reply."""


def test_paid_answers_that_cannot_be_used_are_in_record_and_ledger(tmp_path: Path) -> None:
    with paid_server(lambda _, __: UNUSABLE) as server:
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
    answers = [UNUSABLE, says(""), fails(500), says()]
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


pytestmark = pytest.mark.skipif(not CAN_LOCK, reason="each command has its budget for itself here")
REQUEST = Amount(tokens=100, requests=1)


def test_requests_of_many_commands_do_not_pass_the_budget_together(tmp_path: Path) -> None:
    """Eight commands of four threads, each request of 60 to 100 tokens where 100 are set aside."""
    meters, lock, spent = [Meter(Budget(tokens=10_000)) for _ in range(8)], threading.Lock(), list[int]()

    def asks(meter: Meter, number: int) -> None:
        try:
            while True:
                aside = meter.reserve_amount(REQUEST)
                tokens = 60 + (7 * number + len(spent)) % 41
                time.sleep(0.001)
                with lock:
                    spent.append(tokens)
                meter.add_usage(Usage(prompt=tokens), None, aside)
        except RunBudgetReached:
            return

    with ExitStack() as stack, ThreadPoolExecutor(32) as pool:
        for meter in meters:
            stack.enter_context(meter.share_budget(tmp_path / "budget"))
        list(pool.map(lambda number: asks(meters[number % 8], number), range(32)))
    assert 10_000 <= sum(spent) < 10_000 + 100
    assert {meter.limit_message.partition(" ")[0] for meter in meters} == {"budget.tokens=10000"}
    assert max(meter.tokens for meter in meters) < 10_000


def test_a_request_waits_for_those_under_way_and_one_alone_goes_out(tmp_path: Path) -> None:
    one, other = Meter(Budget(tokens=150)), Meter(Budget(tokens=150))
    with (
        one.share_budget(tmp_path / "budget"),
        other.share_budget(tmp_path / "budget"),
        ThreadPoolExecutor(1) as pool,
    ):
        aside = one.reserve_amount(REQUEST)
        waits = pool.submit(other.reserve_amount, REQUEST)
        time.sleep(0.5)
        assert not waits.done() and other.waiting == 1
        one.add_usage(Usage(prompt=149), None, aside)
        assert waits.result(timeout=10) == REQUEST  # a token is left, and nothing is under way
        other.add_usage(Usage(prompt=10), None, REQUEST)
        with pytest.raises(RunBudgetReached, match=r"budget.tokens=150 \(159 used\)"):
            one.reserve_amount(REQUEST)


def test_a_budget_begins_anew_once_all_who_spent_it_have_ended(tmp_path: Path) -> None:
    path = tmp_path / "budget"
    first, second, third = (Meter(Budget(tokens=100)) for _ in range(3))
    with first.share_budget(path):
        first.add_usage(Usage(prompt=100), None)
        with second.share_budget(path):
            assert not second.has_room(), "the first is still at work"
    with third.share_budget(path):
        assert third.has_room(tokens=100)


KILLED = """
import sys, time
from pathlib import Path
from agentsys.models.budget import Budget, Meter
from agentsys.models.budget import Amount
from agentsys.models.chat import Usage
meter = Meter(Budget(tokens=100))
with meter.share_budget(Path(sys.argv[1])):
    meter.add_usage(Usage(prompt=30), None)
    meter.reserve_amount(Amount(tokens=60, requests=1))
    print("aside", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_command_had_set_aside_is_free_and_what_it_spent_counts(tmp_path: Path) -> None:
    path, meter = tmp_path / "budget", Meter(Budget(tokens=100))
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child, ThreadPoolExecutor(1) as pool:
        assert child.stdout is not None and child.stdout.readline() == "aside\n"
        with meter.share_budget(path):
            waits = pool.submit(meter.reserve_amount, Amount(tokens=50, requests=1))
            time.sleep(0.5)
            assert not waits.done()
            child.kill()
            waits.result(timeout=10)
            assert meter.has_room(tokens=70) and not meter.has_room(tokens=71)
    with meter.share_budget(path):  # nobody who spent the 30 is at work any more
        assert meter.has_room(tokens=100)


def test_a_command_on_another_machine_counts_as_dead_once_its_line_is_old(tmp_path: Path) -> None:
    path, away = tmp_path / "budget", "00000000-7-7-abcd1234"
    path.write_bytes(replace(Account(spent=Amount(tokens=30)), owner=away, written=time.time()).to_line())
    one = Meter(Budget(tokens=100))
    with one.share_budget(path):
        assert one.has_room(tokens=70) and not one.has_room(tokens=71)
    old = replace(Account(spent=Amount(tokens=30)), owner=away, written=time.time() - DEAD_AFTER_S - 5)
    path.write_bytes(old.to_line())
    with one.share_budget(path):
        assert one.has_room(tokens=100)


def test_a_command_says_that_it_lives_while_it_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys.models.budget.BEAT_S", 0.05)
    path = tmp_path / "budget"
    with Meter(Budget(tokens=100)).share_budget(path):
        first = Account.parse_line(path.read_bytes())
        deadline = time.monotonic() + 10
        while Account.parse_line(path.read_bytes()).written == first.written:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert Account.parse_line(path.read_bytes()).ended


@pytest.mark.parametrize("line", [b"", b"{torn", b"[1]", b"null"])
def test_a_line_that_is_none_counts_as_nothing(line: bytes, tmp_path: Path) -> None:
    path = tmp_path / "budget"
    path.write_bytes(line.ljust(budget._LINE_BYTES))
    with Meter(Budget(tokens=100)).share_budget(path), BudgetFile(path).lock_file() as opened:
        assert opened.sum_others == (Amount(), Amount())


def test_nothing_is_sent_where_others_spending_cannot_be_seen(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    meter = Meter(Budget(tokens=100))
    with meter.share_budget(folder / "budget"):
        (folder / "budget").unlink()
        folder.rmdir()
        with pytest.raises(RunBudgetReached, match="cannot be seen"):
            meter.reserve_amount(REQUEST)
        meter.add_usage(Usage(prompt=7), None)  # an answer that came is counted all the same
    assert meter.tokens == 7


def test_a_run_without_a_budget_shares_nothing(tmp_path: Path) -> None:
    chosen = ["model=simulated", "benchmark.suites=[slack]", "limit_per_suite=1", f"logdir={tmp_path}"]
    prepare_session(chosen).execute(Silent())
    assert not (tmp_path / ".agentsys/budget").exists()
    prepare_session([*chosen, "budget.tokens=1000000"]).execute(Silent())
    assert Account.parse_line((tmp_path / ".agentsys/budget").read_bytes()).ended


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["budget.usd=24", "budget.tokens=18000"])
def test_eight_plain_commands_spend_one_budget(budget: str, tmp_path: Path) -> None:
    """None is answered before all have begun, or the first might have spent it and ended by then."""
    commands = 8

    def answer(*_: Any) -> Any:
        time.sleep(0.02)
        return says()

    with paid_server(answer) as server:
        conf = paid_model(tmp_path, server.url, cache=False)
        runs = tmp_path / "runs"
        plan = ["model=paid", "benchmark.suites=[slack]", "attack=none", "epochs=3", "preflight=false"]
        command = [sys.executable, "-m", "agentsys", "run", *plan, budget, "executor.workers=4"]
        command += ["--config-dir", str(conf), f"logdir={runs}", "--yes"]
        server.answers.clear()
        running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(commands)]
        deadline = time.monotonic() + 300
        while len(_lines(runs / ".agentsys/budget")) < commands:
            assert time.monotonic() < deadline and all(one.poll() is None for one in running)
            time.sleep(0.1)
        server.answers.set()
        assert [one.wait(timeout=300) for one in running] == [0] * commands
        tokens = sum(USAGE.values())
        limit, of_one = (24, USD) if "usd" in budget else (18_000, tokens)
        assert limit <= server.billed * of_one < limit + of_one
        records = records_in(runs)
        assert len(records) == server.billed and {r["agentsys"]["status"] for r in records.values()} == {"ok"}
        # The same command goes on, with as much again.
        server.billed = 0
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        assert limit <= server.billed * of_one < limit + of_one


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []
