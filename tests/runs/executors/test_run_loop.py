"""One loop for threads and nodes: what it books, how it stops; and the nodes of a cluster without Ray installed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_runs import Silent, records_in

from agentsys.base.atomic_file import CAN_LOCK
from agentsys.cli.terminal import raise_on_stop_signals
from agentsys.errors import StopRequested
from agentsys.models.budget import Budget, Meter, RunBudgetReached
from agentsys.models.chat import Usage
from agentsys.runs import executors, ray_nodes
from agentsys.runs.build_record import build_case_end
from agentsys.runs.case_outcome import CaseEnd, CaseError, CaseOutcome, make_tracer
from agentsys.runs.cell import Job
from agentsys.runs.executors import Turn, Workers, run_loop
from agentsys.runs.ray_nodes import NodeExecutor, run_on_nodes
from agentsys.runs.run_session import Session, prepare_session, run_as_node
from agentsys.runs.run_totals import AbandonedCell, ErrorCount, RunOutcome, RunTally
from agentsys.runs.store import StoreError

SMALL = ["model=simulated", "attack=none", "benchmark.suites=[slack]", "user_tasks=[0,1]"]


def plan(logdir: Path) -> Session:
    return prepare_session([*SMALL, f"logdir={logdir}"])


class Scripted:
    """An executor whose every step is a function of the test's."""

    def __init__(self, *steps: Callable[[], Sequence[tuple[Job, CaseEnd]]]) -> None:
        self.steps, self.running, self.interrupts = list(steps), 1, 0

    def start(self) -> bool:
        return bool(self.steps)

    def collect(self) -> Iterator[tuple[Job, CaseEnd]]:
        yield from self.steps.pop(0)()

    def interrupt(self) -> None:
        self.interrupts += 1


def end_cases(session: Session) -> list[tuple[Job, CaseEnd]]:
    """The cases of a plan, run one after the other."""
    jobs = list(session.plan.jobs)
    return [(job, executors.build_case_end(executors.run_case(job))) for job in jobs]


def test_the_loop_books_what_was_stored_and_ends_when_nothing_is_left(tmp_path: Path) -> None:
    ended = end_cases(plan(tmp_path))
    executor = Scripted(lambda: ended[:1], lambda: (), lambda: ended[1:])
    listener = Silent()
    tally = RunTally([], listener, None)
    run_loop(executor, tally)
    assert (tally.outcome.finished, tally.outcome.errors, len(listener.records)) == (2, 0, 2)


@pytest.mark.parametrize(
    ("raised", "fatal", "budget", "interrupted"),
    [
        (StoreError("Cannot write x: No space left on device."), True, False, False),
        (RunBudgetReached("all is spent"), False, True, False),
        (StopRequested(signal.SIGTERM), False, False, True),
        (KeyboardInterrupt(), False, False, True),
    ],
)
def test_whatever_a_step_raises_stops_the_run_in_its_own_way(
    raised: BaseException, fatal: bool, budget: bool, interrupted: bool
) -> None:
    def fail() -> Sequence[tuple[Job, CaseEnd]]:
        raise raised

    executor = Scripted(fail, lambda: ())
    tally = RunTally([], Silent(), Meter())
    run_loop(executor, tally)
    outcome = tally.outcome
    assert (outcome.fatal is not None, outcome.budget is not None) == (fatal, budget)
    assert (outcome.interrupted, executor.interrupts, executor.steps) == (interrupted, int(interrupted), [])


def test_a_first_ctrl_c_stops_the_run_between_two_steps() -> None:
    seen = list[str]()

    def press() -> Sequence[tuple[Job, CaseEnd]]:
        signal.raise_signal(signal.SIGINT)
        seen.append("the step went on")
        return ()

    executor, tally = Scripted(press, lambda: ()), RunTally([], Silent(), None)
    run_loop(executor, tally)
    assert (tally.outcome.interrupted, executor.interrupts, seen) == (True, 1, ["the step went on"])


def test_a_second_ctrl_c_is_not_kept_from_the_user() -> None:
    def press() -> Sequence[tuple[Job, CaseEnd]]:
        signal.raise_signal(signal.SIGINT)
        return ()

    with pytest.raises(KeyboardInterrupt):
        run_loop(Scripted(press, press, press), RunTally([], Silent(), None))


def test_an_executor_is_interrupted_once_however_often_and_by_whatever_the_run_is_asked_to_end() -> None:
    def ask(raised: KeyboardInterrupt) -> Callable[[], Sequence[tuple[Job, CaseEnd]]]:
        def press() -> Sequence[tuple[Job, CaseEnd]]:
            raise raised

        return press

    executor = Scripted(ask(KeyboardInterrupt()), ask(StopRequested(signal.SIGTERM)), lambda: ())
    run_loop(executor, RunTally([], Silent(), None))
    assert (executor.interrupts, executor.steps) == (1, [])


def test_joining_a_cluster_leaves_what_sigterm_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))  # As Ray 2.60 does.

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    with raise_on_stop_signals(), ray_nodes._join_cluster(None), pytest.raises(StopRequested):
        signal.raise_signal(signal.SIGTERM)


class FakeCluster:
    """What is used of Ray: each task is done by this process as soon as somebody waits for it."""

    exceptions = SimpleNamespace(RayError=ZeroDivisionError)

    def __init__(self, nodes: int) -> None:
        self.cancelled: list[Any] = []
        self._nodes = [
            {"Alive": True, "NodeID": str(number), "NodeManagerAddress": f"10.0.0.{number}"}
            for number in range(nodes)
        ] + [{"Alive": False}]

    def nodes(self) -> list[dict[str, Any]]:
        return self._nodes

    def wait(self, tasks: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return tasks[:num_returns], tasks[num_returns:]

    def get(self, task: Callable[[], RunOutcome]) -> RunOutcome:
        return task()

    def cancel(self, task: Any, force: bool = False) -> None:
        self.cancelled.append(force)


@contextmanager
def joined(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    @contextmanager
    def join(address: str | None) -> Iterator[FakeCluster]:
        yield cluster

    def start(executor: NodeExecutor, node: dict[str, Any]) -> Callable[[], RunOutcome]:
        return lambda: executor._work()

    with monkeypatch.context() as patch:
        patch.setattr(ray_nodes, "_join_cluster", join)
        patch.setattr(NodeExecutor, "_start_task", start)
        yield


def run_on(
    cluster: FakeCluster,
    session: Session,
    work: Callable[[], RunOutcome],
    listener: Silent,
    meter: Meter | None = None,
) -> RunOutcome:
    chosen = session.settings[0].executor
    return run_on_nodes(
        work, session.plan.open_jobs, chosen, store=session.store, listener=listener, meter=meter
    )


def test_nodes_run_the_plain_command_on_the_shared_folder_and_each_case_is_booked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, listener, cluster = plan(tmp_path), Silent(), FakeCluster(nodes=2)
    hashes = frozenset(one.config_hash for one in session.settings)
    with joined(cluster, monkeypatch):
        outcome = run_on(cluster, session, lambda: run_as_node(session.request, 1, hashes), listener)
    assert (outcome.finished, outcome.errors, outcome.fatal) == (2, 0, None)
    assert len(listener.records) == len(records_in(tmp_path)) == 2
    assert cluster.cancelled == []


def test_what_the_last_node_stored_just_before_its_end_is_booked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, listener = plan(tmp_path), Silent()
    ends = end_cases(session)

    def store_next() -> RunOutcome:
        _, end = ends.pop(0)
        session.store.write(end.record, end.agentdojo)
        return RunOutcome(1, 0)

    with joined(cluster := FakeCluster(nodes=2), monkeypatch):
        outcome = run_on(cluster, session, store_next, listener)
    assert (outcome.finished, len(listener.records), outcome.fatal) == (2, 2, None)


@pytest.mark.parametrize(("presses", "cancelled"), [(1, [False, False]), (2, [False, False, True, True])])
def test_ctrl_c_reaches_every_node_once_and_a_second_one_kills_their_tasks(
    presses: int, cancelled: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pressed(FakeCluster):
        left = presses

        def wait(self, tasks: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
            self.left -= 1
            if self.left >= 0:
                raise KeyboardInterrupt
            return super().wait(tasks, num_returns, timeout)

    class Told(Silent):
        def on_stop(self, why: str, running: int) -> None:
            assert running == 2, "more cases than there are"

    def end() -> RunOutcome:
        return RunOutcome(0, 0, interrupted=True)

    cluster = Pressed(nodes=2)
    second = pytest.raises(KeyboardInterrupt) if presses == 2 else nullcontext()
    with joined(cluster, monkeypatch), second:
        outcome = run_on(cluster, plan(tmp_path), end, Told())
        assert (outcome.interrupted, outcome.fatal) == (True, None)
    assert cluster.cancelled == cancelled


def test_why_nodes_stopped_and_what_they_gave_up_is_the_runs_and_an_old_record_is_not_booked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(tmp_path)
    outcome = CaseOutcome(
        job=(job := first.plan.jobs[0]),
        tracer=make_tracer(job),
        error=CaseError("timeout", "no answer"),
        started=0.0,
        duration_s=0.0,
    )
    end = build_case_end(outcome)
    first.store.write(end.record, end.agentdojo)
    session = plan(tmp_path)
    assert len(session.plan.open_jobs) == 2
    gone = AbandonedCell(job.labels, "no key", 2)

    def stop() -> RunOutcome:
        return RunOutcome(0, 0, fatal="No room on the disk.", ended_cells=(gone,))

    with joined(cluster := FakeCluster(nodes=2), monkeypatch):
        ended = run_on(cluster, session, stop, Silent())
    assert (ended.finished, ended.fatal, ended.ended_cells) == (0, "No room on the disk.", (gone,))


def test_cases_that_no_node_ran_are_explained_by_what_a_node_failed_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> RunOutcome:
        raise ZeroDivisionError("the node is out of memory")

    session, cluster = plan(tmp_path), FakeCluster(nodes=1)
    with joined(cluster, monkeypatch):
        outcome = run_on(cluster, session, breaks, Silent())
        without = run_on(FakeCluster(nodes=0), session, breaks, Silent())
    assert outcome.fatal == "Node 10.0.0.0: the node is out of memory"
    assert (without.finished, records_in(tmp_path)) == (0, {})


def test_errors_in_a_row_in_the_plans_order_do_not_call_a_run_stopped_that_its_nodes_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = prepare_session(["model=simulated", "benchmark.suites=[slack]", f"logdir={tmp_path}"])
    late = CaseError("timeout", "no answer")

    def time_out() -> RunOutcome:
        for job in session.plan.jobs:
            outcome = CaseOutcome(job=job, tracer=make_tracer(job), error=late, started=0.0, duration_s=0.0)
            end = build_case_end(outcome)
            session.store.write(end.record, end.agentdojo)
        return RunOutcome(21, 21)

    with joined(cluster := FakeCluster(nodes=1), monkeypatch):
        outcome = run_on(cluster, session, time_out, Silent(), Meter())
    assert (outcome.finished, outcome.errors, outcome.fatal) == (21, 21, None)
    assert outcome.troubles == (ErrorCount("timeout", 21, "no answer"),)


@pytest.mark.skipif(not CAN_LOCK, reason="without locks no command knows what others spent")
def test_a_run_ended_by_the_budget_of_its_nodes_says_what_they_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spend() -> RunOutcome:
        node = Meter(Budget(tokens=5))
        with node.share_budget(tmp_path / "budget"):
            node.add_usage(Usage(3, 4), 0.0)
        return RunOutcome(0, 0, budget="of the node")

    session, meter = plan(tmp_path / "runs"), Meter(Budget(tokens=5))
    with joined(cluster := FakeCluster(nodes=1), monkeypatch), meter.share_budget(tmp_path / "budget"):
        outcome = run_on(cluster, session, spend, Silent(), meter)
    assert outcome.budget == "budget.tokens=5 (7 used): no further case fits."
    assert outcome.fatal is None


def test_a_task_ahead_of_its_turn_waits_until_nobody_else_does() -> None:
    workers, order = Workers(1), list[str]()

    def work(name: str, place: int) -> None:
        with workers.hold(place):
            order.append(name)

    with workers.hold():
        places = {"ahead": workers.enqueue(Turn(ahead=True)), "in turn": workers.enqueue()}
        begun = [workers.start(partial(work, name, place)) for name, place in places.items()]
    for future in begun:
        future.result(30)
    assert order == ["in turn", "ahead"]
