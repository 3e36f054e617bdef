"""A worker as its driver knows it, in this process."""

from __future__ import annotations

import json
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.simulated.model import SimulatedModel
from agentsys.runs.executors.messages import (
    CannotGoOn,
    CaseTask,
    CaseTasks,
    CellToBuild,
    Drain,
    Ended,
    NotRun,
    Orders,
    Told,
)
from agentsys.runs.executors.worker import CaseWorker
from agentsys.runs.session import prepare


def test_a_worker_has_nothing_under_way_when_its_driver_hears_of_its_last_case(tmp_path: Path) -> None:
    """The driver may end it then, and one that is ended while it is busy leaves its claims behind."""
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "limit=1", f"logdir={tmp_path}"]
    (job,) = prepare(chosen).plan.jobs
    settings = job.cell.settings
    heard: queue.SimpleQueue[tuple[Told, bool]] = queue.SimpleQueue()
    orders = Orders(tmp_path, Path.cwd(), threads=1)
    worker = CaseWorker(orders, lambda told: heard.put((told, worker.busy)))
    with worker:
        worker.hear(CellToBuild(0, settings, settings.config_hash, ()))
        worker.hear(CaseTasks([CaseTask(0, 0, job.case, None)]))
        assert worker.busy
        told = [heard.get(timeout=60)]
        while not isinstance(told[-1][0], Ended):
            told.append(heard.get(timeout=60))
    assert not told[-1][1]


class Slow:
    """The simulated model's replies, each after a gate has opened; counts who is at it at a time."""

    def __init__(self) -> None:
        self.gate, self._lock = threading.Event(), threading.Lock()
        self.now, self.most = 0, 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            assert self.gate.wait(60)
            yield
        finally:
            with self._lock:
                self.now -= 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow, answer = Slow(), SimulatedModel.complete

    def complete(self: SimulatedModel, request: ChatRequest) -> ChatReply:
        with slow.counted():
            return answer(self, request)

    monkeypatch.setattr(SimulatedModel, "complete", complete)
    return slow


def handed(
    tmp_path: Path, threads: int, cases: int, *attack: str
) -> tuple[CaseWorker, queue.SimpleQueue[Told]]:
    """A worker of so many agents at a time that has so many cases, and what it says."""
    chosen = ["model=simulated", "benchmark.suites=[slack]", f"limit={cases}", *(attack or ["attack=none"])]
    jobs = prepare([*chosen, f"logdir={tmp_path}"]).plan.jobs
    told = queue.SimpleQueue[Told]()
    worker = CaseWorker(Orders(tmp_path, Path.cwd(), threads=threads), told.put)
    worker.__enter__()
    settings = jobs[0].cell.settings
    worker.hear(CellToBuild(0, settings, settings.config_hash, ()))
    worker.hear(CaseTasks([CaseTask(number, 0, job.case, None) for number, job in enumerate(jobs)]))
    return worker, told


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_case_is_made_ready_while_agents_work_and_no_more_of_them_do_than_asked_for(
    tmp_path: Path, slow: Slow
) -> None:
    worker, told = handed(tmp_path, threads=4, cases=8)
    until(lambda: slow.now == 4 and len(worker._seats._waiting) == 1)
    time.sleep(2.0)
    slow.gate.set()
    until(lambda: not worker.busy)
    worker.__exit__(None, None, None)
    heard = [told.get() for _ in range(told.qsize())]
    records = [one.end.record for one in heard if isinstance(one, Ended)]
    assert [record.status for record in records] == ["ok"] * 8
    assert slow.most == 4
    took = sorted(json.loads(path.read_bytes())["duration"] for path in tmp_path.rglob("none.json"))
    assert took[3] < 2.0 <= took[4]  # who waited for a seat has not worked longer for it


def test_a_draining_worker_ends_the_cases_whose_agents_are_at_work_and_gives_the_others_back(
    tmp_path: Path, slow: Slow
) -> None:
    worker, told = handed(tmp_path, threads=4, cases=8)
    until(lambda: slow.now == 4 and len(worker._seats._waiting) == 1)
    worker.hear(Drain())
    slow.gate.set()
    until(lambda: not worker.busy)
    assert not worker._claims._held
    worker.__exit__(None, None, None)
    heard = [told.get() for _ in range(told.qsize())]
    assert not any(isinstance(one, CannotGoOn) for one in heard)
    came = [one for one in heard if isinstance(one, Ended | NotRun)]
    ended = {one.task for one in came if isinstance(one, Ended)}
    # Of the five that were begun, whichever were ready first.
    assert len(ended) == 4 and ended < {*range(5)}
    back = [one for one in came if isinstance(one, NotRun)]
    assert sorted([*ended, *(one.task for one in back)]) == [*range(8)]
    assert not any(one.stored or one.claimed or one.over_budget for one in back)
    assert len(list(tmp_path.rglob("none.json"))) == 4


def test_a_worker_of_one_case_at_a_time_makes_no_other_ready(tmp_path: Path, slow: Slow) -> None:
    worker, _ = handed(tmp_path, threads=1, cases=3)
    until(lambda: slow.now == 1)
    time.sleep(0.3)
    assert len(worker._claims._held) == 1
    slow.gate.set()
    until(lambda: not worker.busy)
    worker.__exit__(None, None, None)
    assert slow.most == 1


def test_a_case_that_is_searched_for_has_one_seat_for_its_attacker_and_its_agents(
    tmp_path: Path, slow: Slow
) -> None:
    worker, told = handed(tmp_path, 4, 5, "attack=pair", "attack.mode=per_case", "attack.depth=2")
    until(lambda: slow.now == 4 and len(worker._seats._waiting) == 1)
    slow.gate.set()
    until(lambda: not worker.busy)
    worker.__exit__(None, None, None)
    heard = [told.get() for _ in range(told.qsize())]
    assert sum(isinstance(one, Ended) for one in heard) == 5
    assert slow.most == 4


def test_a_worker_is_silent_about_empty_answers_as_the_command_is(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        CaseWorker(Orders(tmp_path, Path.cwd(), threads=1), lambda told: None)
        warnings.warn("Model output was None for task user_task_14", stacklevel=1)
    assert said == []
