"""`CaseWorker`: builds cells and runs the cases that it is handed, on threads of its own.

It knows nothing of how orders reach it: `processes` reads them from a pipe, `ray` gets them as calls.
"""

from __future__ import annotations

import contextvars
import dataclasses
import logging
import os
import platform
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from agentsys.errors import ConfigError
from agentsys.ledger import FILE, Ledger
from agentsys.models.budget import Books, Meter, MeterReading, RunBudgetReached
from agentsys.named_module import import_from
from agentsys.runs.cell import Cell, CellBuilder
from agentsys.runs.claims import Claims
from agentsys.runs.executors.messages import (
    AttemptMade,
    CannotGoOn,
    CaseTask,
    CaseTasks,
    CellToBuild,
    Drain,
    Ended,
    NotRun,
    Order,
    Orders,
    Ready,
    SpentElsewhere,
    Told,
    WorkerSpent,
    briefly,
)
from agentsys.runs.executors.stored_case import run_and_store
from agentsys.runs.plan import Job
from agentsys.runs.search.searches import CellSearches
from agentsys.runs.seats import Seats
from agentsys.runs.store import Store, StoreError

_PULSE_S = 0.1
"""How often a worker says what it has spent, if that has changed."""


class CaseWorker:
    """Runs cases and stores their records. Use as a context.

    Args:
        orders: What it must know.
        tell: Takes what it has to say; called from any thread.
    """

    def __init__(self, orders: Orders, tell: Callable[[Told], None]) -> None:
        os.chdir(orders.here)
        for name, level in orders.log_levels:
            logging.getLogger(name).setLevel(level)
        import_from(orders.plugin_paths)
        warnings.filterwarnings("ignore", message="Model output was None")  # AgentDojo's; records hold it
        self._tell = tell
        self._store = Store(orders.logdir)
        self._meter = Meter(orders.budget)
        self._elsewhere = MeterReading()
        books = Books(self._meter, Ledger(self._store.own / FILE))
        self._seats = Seats(orders.threads)
        self._builder = CellBuilder(self._store, orders.config_dirs, books=books, seats=self._seats)
        self._cells: dict[int, Cell] = {}
        self._claims = Claims(self._store, cleans=False)
        self._drains = False
        self._searches = CellSearches(
            self._store, lambda made: tell(AttemptMade(briefly(made))), lambda: self._drains, self._claims
        )
        # With few seats none is made ready beside them: who asks for one case at a time gets one.
        threads = orders.threads + orders.threads // 4
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="case")
        self._ended = threading.Event()
        self._under_way: set[int] = set()

    @property
    def busy(self) -> bool:
        """Whether there is a case that has not come to an end."""
        return bool(self._under_way)

    def __enter__(self) -> CaseWorker:
        self._claims.__enter__()
        threading.Thread(target=self._pulse, name="pulse", daemon=True).start()
        self._tell(Ready(os.getpid(), platform.node()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._begin_no_more()
        self._pool.shutdown()
        self._ended.set()
        self._tell(WorkerSpent(self._own))
        self._claims.__exit__(kind, error, trace)

    def hear(self, order: Order) -> None:
        """Do as the driver says."""
        match order:
            case CaseTasks(tasks):
                self._under_way |= {task.number for task in tasks}
                for task in tasks:
                    # An empty context: nothing of this thread's (loggers, tracers) reaches the case, or back.
                    self._pool.submit(contextvars.Context().run, self._run, task)
            case CellToBuild():
                self._build(order)
            case SpentElsewhere(reading):
                self._meter.add_elsewhere(reading - self._elsewhere)
                self._elsewhere = reading
            case Drain():
                self._begin_no_more()

    def _build(self, order: CellToBuild) -> None:
        try:
            if order.settings.config_hash != order.config_hash:
                raise ConfigError(_OTHER_CODE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # said by the driver, which built the same
                cell = self._builder.build(order.settings)
            cell.warm_up()
            self._cells[order.number] = dataclasses.replace(cell, notes=order.notes)
        except ConfigError as error:
            self._stop(f"A worker cannot build what the run needs: {error}")

    def _run(self, task: CaseTask) -> None:
        try:
            outcome = self._outcome(task)
            self._tell(WorkerSpent(self._own))  # first, or its cost is for a moment in no one's sum
            self._under_way.discard(task.number)  # before the driver, who may wait for nothing else, ends us
            self._tell(outcome)
        except StoreError as error:
            self._tell(NotRun(task.number))
            self._stop(str(error))
        except BaseException as error:  # noqa: BLE001 - a bug here must not leave the driver waiting
            self._tell(NotRun(task.number))
            self._stop(f"A worker failed: {type(error).__name__}: {error}")
        finally:
            self._under_way.discard(task.number)

    def _outcome(self, task: CaseTask) -> Told:
        key = task.case.key
        cell = self._cells.get(task.cell)
        if self._drains or cell is None:
            return NotRun(task.number)
        self._store.saw(task.case, task.seen)
        taken = self._claims.take(key)
        # Looked at under the claim: nobody stores it from here on.
        if self._store.renewed(task.case):
            self._claims.release(key)
            return NotRun(task.number, stored=True)
        if not taken:
            return NotRun(task.number, claimed=True)
        try:
            end = run_and_store(Job(task.case, cell), self._store, self._searches, self._claims)
        except RunBudgetReached:
            return NotRun(task.number, over_budget=True)
        if end is None:
            return NotRun(task.number)
        return Ended(task.number, dataclasses.replace(end, record=briefly(end.record)))

    def _stop(self, why: str) -> None:
        self._begin_no_more()
        self._tell(CannotGoOn(why))

    def _begin_no_more(self) -> None:
        self._drains = True
        self._seats.begin_no_more()

    @property
    def _own(self) -> MeterReading:
        return self._meter.reading - self._elsewhere

    def _pulse(self) -> None:
        last = MeterReading()
        while not self._ended.wait(_PULSE_S):
            if (now := self._own) != last:
                last = now
                self._tell(WorkerSpent(now))


_OTHER_CODE = (
    "it computes another configuration from the same settings, so its package versions are not those of the"
    " process that planned the run; install the same on every node."
)
