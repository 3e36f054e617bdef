"""The driver of worker processes, with workers that only pretend."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent

from agentsys.errors import ConfigError
from agentsys.models.budget import Budget, Meter, MeterReading
from agentsys.records.schema import StoredSpan
from agentsys.runs.claims import Claims
from agentsys.runs.executors.driver import Crowd, run_by_workers
from agentsys.runs.executors.messages import (
    CannotGoOn,
    CaseTask,
    CaseTasks,
    CellToBuild,
    Drain,
    Ended,
    NotRun,
    Order,
    Ready,
    SpentElsewhere,
    WorkerSpent,
    briefly,
)
from agentsys.runs.executors.staff import Gone, Hand, Heard
from agentsys.runs.executors.start import check_travels
from agentsys.runs.executors.stored_case import CaseEnd
from agentsys.runs.finish_case import deadly_case
from agentsys.runs.session import Session, prepare
from agentsys.runs.store import Store

Policy = Callable[["Pretender", CaseTask], list[Any]]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("driven")
    return prepare(["model=simulated", "benchmark.suites=[slack]", f"logdir={folder}"])


class Pretender(Hand):
    """A worker that says at once what its policy makes of each task."""

    def __init__(self, number: int, staff: Pretenders) -> None:
        self.number, self.staff, self.orders, self.open = number, staff, list[Order](), set[int]()

    @property
    def name(self) -> str:
        return f"pretender {self.number}"

    def send(self, order: Order) -> None:
        self.orders.append(order)
        if isinstance(order, CaseTasks):
            self.open |= {task.number for task in order.tasks}
            self.staff.handed.append([task.case.key for task in order.tasks])
            for task in order.tasks:
                self.staff.queue += [Heard(self, told) for told in self.staff.policy(self, task)]
        if isinstance(order, Drain):
            self.staff.queue += [Heard(self, NotRun(task)) for task in sorted(self.open)]


class Pretenders:
    """Hires pretenders."""

    def __init__(self, policy: Policy, up: bool = True) -> None:
        self.policy, self.up = policy, up
        self.hands, self.queue, self.handed = list[Pretender](), list[Heard](), list[list[str]]()
        self.killed = self.dismissed = False

    def hire(self) -> Hand:
        self.hands.append(Pretender(len(self.hands), self))
        self.queue += [Heard(self.hands[-1], Ready(1))] if self.up else []
        return self.hands[-1]

    def heard(self, timeout_s: float) -> list[Heard]:
        said, self.queue = self.queue, []
        for heard in said:
            if isinstance(heard.hand, Pretender) and isinstance(heard.told, Ended | NotRun):
                heard.hand.open.discard(heard.told.task)
        return said

    def dismiss(self) -> None:
        self.dismissed = True

    def kill(self) -> None:
        self.killed = True


class Run:
    """One driven run over the session's cases."""

    def __init__(self, session: Session, folder: Path, policy: Policy, **more: Any) -> None:
        self.jobs = {job.case.key: job for job in session.plan.todo}
        self.store = Store(folder)
        self._policy = policy
        self.staff = Pretenders(self._counted, more.pop("up", True))
        self.listener = more.pop("listener", None) or Silent()
        self.handed_out, self.most_ahead = 0, 0
        with Claims(self.store) as claims:
            self.outcome = run_by_workers(
                list(self.jobs.values()),
                staff=self.staff,
                crowd=Crowd(workers=2, threads=4),
                store=self.store,
                claims=claims,
                listener=self.listener,
                meter=more.get("meter"),
            )

    def _counted(self, hand: Pretender, task: CaseTask) -> list[Any]:
        self.handed_out += 1
        self.most_ahead = max(self.most_ahead, self.handed_out - len(self.listener.records))
        return self._policy(hand, task)

    @property
    def times(self) -> Counter[str]:
        return Counter(key for handed in self.staff.handed for key in handed)


def end_of(session: Session, task: CaseTask, **more: Any) -> CaseEnd:
    job = next(job for job in session.plan.todo if job.case == task.case)
    record = deadly_case(job, "").record.model_copy(update={"status": "ok", "error_kind": None})
    return CaseEnd(record.model_copy(update=more))


def test_cases_are_handed_out_as_there_is_room_for_them(session: Session, tmp_path: Path) -> None:
    run = Run(session, tmp_path, lambda _, task: [Ended(task.number, end_of(session, task))])
    assert run.outcome.finished == 21 and set(run.times.values()) == {1}
    assert [len(handed) for handed in run.staff.handed[:2]] == [5, 5]
    assert run.most_ahead <= 2 * 5
    assert run.staff.dismissed and not run.staff.killed
    cells = [order for hand in run.staff.hands for order in hand.orders if isinstance(order, CellToBuild)]
    assert [cell.number for cell in cells] == [0, 0]  # each worker is told once


def test_workers_make_a_case_ready_until_the_last_ones_are_handed_out(tmp_path: Path) -> None:
    """The last one for each of two times four places: one that waits in a worker could begin elsewhere."""
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none,direct", f"logdir={tmp_path}"]
    session = prepare(chosen)
    run = Run(session, tmp_path, lambda _, task: [Ended(task.number, end_of(session, task))])
    assert run.outcome.finished == 126
    sizes = list(map(len, run.staff.handed))
    ready, last = sizes[: sizes.index(4)], sizes[sizes.index(4) :]
    assert set(ready) == {5} and 126 - sum(ready) <= 2 * 4 + 4
    assert max(last) == 4


def test_what_a_gone_worker_had_is_run_alone_and_what_it_stored_is_not(
    session: Session, tmp_path: Path
) -> None:
    stored = list[str]()

    def policy(hand: Pretender, task: CaseTask) -> list[Any]:
        if hand.number:
            return [Ended(task.number, end_of(session, task))]
        if not stored:  # stored, and gone before it could say so
            stored.append(task.case.key)
            Store(tmp_path).write(end_of(session, task).record, {"error": None})
        return [Gone("it left")] if len(hand.open) == 5 and task.number == max(hand.open) else []

    run = Run(session, tmp_path, policy)
    assert (run.outcome.finished, run.outcome.errors, run.outcome.elsewhere) == (21, 0, 0)
    assert len(run.listener.records) == 21
    assert run.times[stored[0]] == 1
    lost = [key for key in run.staff.handed[0] if key not in stored]
    assert {run.times[key] for key in lost} == {2}
    assert all([key] in run.staff.handed for key in lost)  # each by itself
    assert sum(run.times.values()) == 21 + len(lost)


def test_a_case_that_ends_a_second_worker_is_an_error(session: Session, tmp_path: Path) -> None:
    def policy(_: Pretender, task: CaseTask) -> list[Any]:
        if task.case.user_task_id == "user_task_3":
            return [Gone("it was killed by signal 9")]
        return [Ended(task.number, end_of(session, task))]

    run = Run(session, tmp_path, policy)
    assert (run.outcome.finished, run.outcome.errors, run.outcome.fatal) == (21, 1, None)
    (error,) = [record for record in run.listener.records if record.status == "error"]
    assert (error.case.user_task_id, error.error_kind) == ("user_task_3", "worker_died")
    assert run.times[error.case.key] == 2
    assert b"killed by signal 9" in (tmp_path / error.case.key).read_bytes()


def test_cases_of_a_lost_machine_are_under_no_suspicion(session: Session, tmp_path: Path) -> None:
    def policy(hand: Pretender, task: CaseTask) -> list[Any]:
        if hand.number < 3:  # whichever case it was
            return [Gone("its node is gone", blameless=True)] if task.number == max(hand.open) else []
        return [Ended(task.number, end_of(session, task))]

    run = Run(session, tmp_path, policy)
    assert (run.outcome.finished, run.outcome.errors) == (21, 0)
    assert max(run.times.values()) == 3 and all(len(handed) == 5 for handed in run.staff.handed[:4])


def test_what_a_lost_worker_stores_afterwards_is_the_runs_own(session: Session, tmp_path: Path) -> None:
    def policy(hand: Pretender, task: CaseTask) -> list[Any]:
        if not hand.number:
            return [Gone("its node is gone", blameless=True)] if task.number == max(hand.open) else []
        if task.case.key not in run_before:
            return [Ended(task.number, end_of(session, task))]
        Store(tmp_path).write(end_of(session, task).record, {"error": None})
        return [NotRun(task.number, stored=True)]

    run_before = [job.case.key for job in session.plan.todo][:5]  # of the first worker
    run = Run(session, tmp_path, policy)
    assert run.staff.handed[0] == run_before
    assert (run.outcome.finished, run.outcome.elsewhere, len(run.listener.records)) == (21, 0, 21)


def test_workers_that_never_come_up_end_the_run(session: Session, tmp_path: Path) -> None:
    run = Run(session, tmp_path, lambda *_: [Gone("worker process 7 ended with status 1")], up=False)
    assert (
        run.outcome.fatal
        == "worker process 7 ended with status 1 before it could begin, as those before it did."
    )
    assert run.outcome.finished == 0 and len(run.staff.hands) <= 4


def test_workers_whose_machine_goes_before_they_are_up_do_not_end_the_run(
    session: Session, tmp_path: Path
) -> None:
    def policy(hand: Pretender, task: CaseTask) -> list[Any]:
        if hand.number < 6:
            return [Gone("its node is gone", blameless=True)] if task.number == max(hand.open) else []
        return [Ready(1), Ended(task.number, end_of(session, task))]

    run = Run(session, tmp_path, policy, up=False)
    assert (run.outcome.finished, run.outcome.errors, run.outcome.fatal) == (21, 0, None)


def test_a_cell_that_cannot_be_built_elsewhere_ends_the_run(session: Session, tmp_path: Path) -> None:
    run = Run(session, tmp_path, lambda _, task: [CannotGoOn("no key there"), NotRun(task.number)])
    assert (run.outcome.fatal, run.outcome.finished) == ("no key there", 0)


def test_cases_of_other_commands_are_left_to_them_and_looked_at_again(
    session: Session, tmp_path: Path
) -> None:
    seen = Counter[str]()

    def policy(_: Pretender, task: CaseTask) -> list[Any]:
        seen[task.case.key] += 1
        if task.case.user_task_id == "user_task_0":
            return [NotRun(task.number, stored=True)]
        if task.case.user_task_id == "user_task_1" and seen[task.case.key] == 1:
            return [NotRun(task.number, claimed=True)]
        return [Ended(task.number, end_of(session, task))]

    run = Run(session, tmp_path, policy)
    assert (run.outcome.finished, run.outcome.elsewhere) == (20, 1)
    assert sorted(run.times.values())[-2:] == [1, 2]


class Impatient(Silent):
    """Presses Ctrl-C, once or twice, after the first case."""

    def __init__(self, presses: int) -> None:
        super().__init__()
        self.left = presses
        self.said = list[str]()

    def tick(self) -> None:
        if self.records and self.left:
            self.left -= 1
            raise KeyboardInterrupt

    def stopping(self, why: str, running: int) -> None:
        self.said.append(why)


def test_the_first_ctrl_c_lets_workers_finish_and_the_second_ends_them(
    session: Session, tmp_path: Path
) -> None:
    def slowly(hand: Pretender, task: CaseTask) -> list[Any]:
        return [Ended(task.number, end_of(session, task))] if task.number < 2 else []

    run = Run(session, tmp_path / "once", slowly, listener=(listener := Impatient(1)))
    assert (run.outcome.interrupted, run.outcome.finished) == (True, 2)
    assert listener.said == ["interrupted"] and not run.staff.killed
    assert all(isinstance(hand.orders[-1], Drain) for hand in run.staff.hands)

    def never(hand: Pretender, task: CaseTask) -> list[Any]:
        hand.open.discard(task.number)  # not even asked to stop does it say anything
        return slowly(hand, task)

    with pytest.raises(KeyboardInterrupt):
        Run(session, tmp_path / "twice", never, listener=Impatient(2))


class Timed(Silent):
    """Lets a run have so many turns."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.left = turns

    def tick(self) -> None:
        self.left -= 1
        assert self.left, "it waits for ever"


def test_a_ctrl_c_between_booking_and_handing_out_loses_no_case(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would wait for ever for a case that its worker was never handed."""

    def ending(hand: Pretender, task: CaseTask) -> list[Any]:
        return [Ended(task.number, end_of(session, task))]

    send, presses = Pretender.send, [signal.SIGINT]

    def interrupted(hand: Pretender, order: Order) -> None:
        if isinstance(order, CaseTasks) and presses:
            signal.raise_signal(presses.pop())
        send(hand, order)

    monkeypatch.setattr(Pretender, "send", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run = Run(session, tmp_path, ending, listener=Timed(100))
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.outcome.interrupted
    assert run.outcome.finished == run.handed_out > 0


def test_a_budget_counts_what_all_workers_spent(session: Session, tmp_path: Path) -> None:
    meter = Meter(Budget(tokens=1000))

    def policy(hand: Pretender, task: CaseTask) -> list[Any]:
        spent = 400 * len([order for order in hand.orders if isinstance(order, CaseTasks)])
        return [WorkerSpent(MeterReading(tokens=spent)), Ended(task.number, end_of(session, task))]

    run = Run(session, tmp_path, policy, meter=meter)
    assert run.outcome.budget is not None and 1000 <= meter.tokens <= 1600
    told = [order for hand in run.staff.hands for order in hand.orders if isinstance(order, SpentElsewhere)]
    assert told and run.outcome.finished < 21


def test_records_travel_without_conversations(session: Session) -> None:
    task = CaseTask(0, 0, session.plan.todo[0].case, None)
    spans = [
        StoredSpan(
            id=number,
            parent_id=None,
            kind="main",
            name=None,
            attempt=0,
            messages=[{"role": "user", "content": "x" * 10_000}],
            calls=[],
            decision={"why": "y"},
            duration_s=float(number),
        )
        for number in range(3)
    ]
    sent = briefly(end_of(session, task, spans=spans, written={"a": "z" * 10_000}).record)
    assert len(sent.model_dump_json()) < 4_000
    assert [span.duration_s for span in sent.spans] == [2.0]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["executor=procesess"], "Unknown executor 'procesess'. Did you mean processes"),
        (["+executor.processes=2"], "threads are in one process: executor=processes has several"),
        (["executor=processes", "executor.processes=0"], "executor.processes' = 0"),
        (["executor=processes", "attack=manual"], "attack=manual asks in this terminal"),
    ],
)
def test_a_wrong_executor_is_one_line(overrides: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        prepare(["model=simulated", *overrides, f"logdir={tmp_path}"])
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_settings_that_mean_nothing_elsewhere_are_refused(session: Session) -> None:
    elsewhere: dict[str, Any] = {"kind": "processes", "workers": 4, "processes": 2}
    settings = session.settings[0]
    away = settings.model_copy(update={"executor": type(settings.executor)(**elsewhere)})
    check_travels(away)
    with pytest.raises(ConfigError, match="Setting 'defense' holds what cannot be handed to another process"):
        check_travels(away.model_copy(update={"defense": {"judge": lambda: None}}))
