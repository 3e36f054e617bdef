"""Commands on one log folder have one budget: they never pass it together, and a killed one holds nothing."""

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

import pytest
from paid_server import USAGE, USD, paid_model, paid_server, says
from small_runs import Silent, records_in

from agentsys.base.atomic_file import CAN_LOCK
from agentsys.models import budget
from agentsys.models.budget import (
    DEAD_AFTER_S,
    Account,
    Amount,
    Budget,
    BudgetFile,
    Meter,
    RunBudgetReached,
)
from agentsys.models.chat import Usage
from agentsys.runs.run_session import prepare_session

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
