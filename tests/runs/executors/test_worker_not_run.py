"""What a worker says of a case that it does not run: its driver waits for a word on each."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any

import pytest
from small_runs import records_in

from agentsys.models.budget import RunBudgetReached
from agentsys.runs.claims import Claims
from agentsys.runs.executors import worker as worker_module
from agentsys.runs.executors.messages import (
    CannotGoOn,
    CaseTask,
    CaseTasks,
    CellToBuild,
    Ended,
    NotRun,
    Orders,
    Told,
)
from agentsys.runs.executors.worker import CaseWorker
from agentsys.runs.plan import Job
from agentsys.runs.store import Store, StoreError


def said_of(job: Job, folder: Path) -> list[Told]:
    """What a worker says of a case that was not there when the run was planned."""
    told, settings = queue.SimpleQueue[Told](), job.cell.settings
    with CaseWorker(Orders(folder, Path.cwd(), threads=1), told.put) as worker:
        worker.hear(CellToBuild(0, settings, settings.config_hash, ()))
        worker.hear(CaseTasks([CaseTask(7, 0, job.case, None)]))
        end = time.monotonic() + 60
        while worker.busy:
            assert time.monotonic() < end
            time.sleep(0.005)
        assert not worker._claims._held
    heard = [told.get() for _ in range(told.qsize())]
    return [one for one in heard if isinstance(one, Ended | NotRun | CannotGoOn)]


def test_a_case_that_another_process_is_at_is_left_to_it(job: Job, tmp_path: Path) -> None:
    with Claims(Store(tmp_path)) as other:
        assert other.take(job.case.key)
        assert said_of(job, tmp_path) == [NotRun(7, claimed=True)]
    assert records_in(tmp_path) == {}


def test_a_case_that_another_process_has_stored_meanwhile_is_not_run_again(job: Job, tmp_path: Path) -> None:
    (first,) = said_of(job, tmp_path)
    assert isinstance(first, Ended)
    (path,) = tmp_path.rglob("none.json")
    stored = path.read_bytes()
    assert said_of(job, tmp_path) == [NotRun(7, stored=True)]
    assert path.read_bytes() == stored


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RunBudgetReached("used up"), [NotRun(7, over_budget=True)]),
        (StoreError("disk full"), [NotRun(7), CannotGoOn("disk full")]),
        (KeyError("odd"), [NotRun(7), CannotGoOn("A worker failed: KeyError: 'odd'")]),
        (KeyboardInterrupt(), [NotRun(7), CannotGoOn("A worker failed: KeyboardInterrupt: ")]),
    ],
    ids=["budget", "store", "a bug", "an interrupt"],
)
def test_a_case_that_could_not_be_run_is_told_of_once_with_why(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, said: list[Told]
) -> None:
    def breaks(job: Job, store: Store, searches: Any, claims: Claims) -> Any:
        claims.release(job.case.key)  # as the real one does, whatever comes
        raise error

    monkeypatch.setattr(worker_module, "run_and_store", breaks)
    assert said_of(job, tmp_path) == said
