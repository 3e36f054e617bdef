"""A case whose agent is done is judged by its suite and stored, though the run is ending meanwhile."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from small_runs import records_in

from agentsys.runs.executors.messages import (
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

CLERK = Path(__file__).parents[2] / "support" / "clerk_benchmark"
MEASURED = {"user_turns": 3, "polite": True, "secret": "not shown"}


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


class Office:
    """Lets as many agents begin as a test says; counts who is at work, as agent or as judge, at a time."""

    def __init__(self) -> None:
        self.may_begin, self._lock = threading.Semaphore(0), threading.Lock()
        self.begun = self.now = self.most = self.judged = 0
        self.broken = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        try:
            yield
        finally:
            with self._lock:
                self.now -= 1

    def begins(self) -> None:
        with self._lock:
            self.begun += 1
        assert self.may_begin.acquire(timeout=60)

    def judges(self) -> None:
        if self.broken:
            raise RuntimeError("the judge broke")
        time.sleep(0.01)
        with self._lock:
            self.judged += 1


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.syspath_prepend(CLERK)
    office, clerk = Office(), import_module("clerk")
    answer, judge = clerk.Gullible.complete, clerk.OfficeSuite.measured

    def complete(self: Any, request: Any) -> Any:
        with office.at_work():
            if not any(message["role"] == "assistant" for message in request.messages):
                office.begins()
            return answer(self, request)

    def measured(self: Any, finished: Any) -> Any:
        with office.at_work():
            office.judges()
            return judge(self, finished)

    monkeypatch.setattr(clerk.Gullible, "complete", complete)
    monkeypatch.setattr(clerk.OfficeSuite, "measured", measured)
    return office


def draining(folder: Path, office: Office) -> list[Told]:
    """What a worker of four agents says of eight cases, told to end while one waits to be judged."""
    chosen = ["benchmark=clerk", "model=gullible", "attack=none", "epochs=8", f"logdir={folder}"]
    configs = (CLERK / "configs",)
    jobs = prepare(chosen, config_dirs=configs, plugin_paths=[CLERK]).plan.jobs
    settings, told = jobs[0].cell.settings, queue.SimpleQueue[Told]()
    orders = Orders(folder, Path.cwd(), threads=4, config_dirs=configs, plugin_paths=(CLERK,))
    with CaseWorker(orders, told.put) as worker:
        worker.hear(CellToBuild(0, settings, settings.config_hash, ()))
        worker.hear(CaseTasks([CaseTask(number, 0, job.case, None) for number, job in enumerate(jobs)]))
        waiting = worker._seats._waiting
        until(lambda: office.begun == 4 and len(waiting) == 1)
        office.may_begin.release()
        # The one that is done has left its seat to the fifth case, and needs one for its judge.
        until(lambda: office.begun == 5 and len(waiting) == 1)
        worker.hear(Drain())
        assert office.judged == 0 and len(waiting) == 1
        office.may_begin.release(8)
        until(lambda: not worker.busy)
        assert not worker._claims._held
    return [told.get() for _ in range(told.qsize())]


def test_a_case_that_waits_for_its_judge_is_judged_and_stored_though_the_run_ends(
    tmp_path: Path, office: Office
) -> None:
    told = draining(tmp_path, office)
    ended = [one.end.record for one in told if isinstance(one, Ended)]
    assert [(record.status, record.utility) for record in ended] == [("ok", True)] * 5
    assert sum(isinstance(one, NotRun) for one in told) == 3
    assert office.judged == 5 and office.most == 4
    records = records_in(tmp_path)
    assert [record["agentsys"]["measured"] for record in records.values()] == [MEASURED] * 5


def test_a_case_whose_judge_breaks_meanwhile_is_an_error_and_has_no_scores(
    tmp_path: Path, office: Office
) -> None:
    office.broken = True
    draining(tmp_path, office)
    records = records_in(tmp_path)
    assert len(records) == 5
    for record in records.values():
        ours = record["agentsys"]
        assert (ours["error_kind"], ours["measured"]) == ("scorer", {})
        assert not record["utility"]
        assert record["messages"], "what its agent did is kept"
