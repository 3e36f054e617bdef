"""`MeasuredRuns`: the tables and figures of followed runs, measured anew as cases come."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from agentsys.amounts import counted
from agentsys.analysis.html_report.page import PageNumbers, numbers_page
from agentsys.errors import ConfigError
from agentsys.records.reading import Reading
from agentsys.records.stored_plan import stored_outlooks
from agentsys.records.unfinished import unfinished_in, unfinished_lines
from agentsys.view.followed import FollowedRuns

_LOG = logging.getLogger(__name__)

PAUSE_S = 2.0
"""Between two measurements, and at least four times as long as one takes: cases come first."""
_MANY = 1000
"""From so many cases on, and while files are still being read, a process of its own measures: the reading and
the pages would wait for every number otherwise. With fewer cases starting it takes longer than measuring."""


class ShownNumbers(NamedTuple):
    """What the page shows of one measurement."""

    numbers: PageNumbers
    html: str
    """A document with the numbers."""
    planned: str
    """What is planned and has no record yet, in a sentence; empty where nothing is."""


class MeasuredRuns:
    """Measures from a thread of its own, from `start` to `stop`."""

    def __init__(self, runs: FollowedRuns) -> None:
        self._runs = runs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_measuring, name="measured-runs", daemon=True)
        self._process = MeasuringProcess()
        self.version = 0
        """Grows with every measurement."""
        self.shown: ShownNumbers | None = None
        """None before the first measurement."""

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End it; a measurement of many cases under way is given up. May be called twice."""
        self._stopping.set()
        self._process.stop()

    def _keep_measuring(self) -> None:
        measured, rest_until = (0, False), 0.0
        while not self._stopping.wait(0.1):
            # What is still being read is measured as far as it goes, and once more at its end, at once.
            reading_files = self._runs.reading_files
            now = (self._runs.version, reading_files)
            ended = measured[1] and not reading_files
            if now == measured or not now[0] or (time.monotonic() < rest_until and not ended):
                continue
            started = time.monotonic()
            self._measure(self._runs.reading, so_far=reading_files)
            took = time.monotonic() - started
            measured, rest_until = now, started + took + max(PAUSE_S, 4 * took)

    def _measure(self, reading: Reading, *, so_far: bool) -> None:
        work = self._process.measure if so_far or len(reading.cases) >= _MANY else shown_numbers
        try:
            self.shown = work(reading, self._runs.folders, so_far)
        except (ConfigError, OSError, EOFError) as fault:  # what the next files may mend
            if not self._stopping.is_set():
                _LOG.warning("Cannot measure the runs: %s", fault or "the measuring process ended")
            return
        self.version += 1
        self._runs.wake()


def shown_numbers(reading: Reading, folders: Sequence[Path], so_far: bool) -> ShownNumbers:
    """Measure what lies in some folders; `so_far`: there are more cases to read, which the notes then say.

    Raises:
        ConfigError: If a stored plan is none.
        OSError: If one cannot be read.
    """
    # Imported where they are used, by this process or the other: they cost the server's start a second.
    from agentsys.analysis.html_report.build import page_numbers
    from agentsys.analysis.tables.report import report

    known = replace(reading, outlooks=stored_outlooks(folders))
    numbers = page_numbers(known, report(known))
    if so_far:
        cases = counted(len(reading.cases), "case")
        note = f"Files are still being read: these are the numbers of the first {cases}."
        numbers = replace(numbers, notes=(note, *numbers.notes))
    planned = " ".join(unfinished_lines(unfinished_in(folders)))
    return ShownNumbers(numbers, numbers_page(numbers), planned)


class MeasuringProcess:
    """A process that measures and nothing else; started when it is first asked."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._asking: Connection | None = None
        self._stopped = False
        self._starting = threading.Lock()

    def measure(self, reading: Reading, folders: Sequence[Path], so_far: bool) -> ShownNumbers:
        """`shown_numbers`, there.

        Raises:
            ConfigError: As `shown_numbers`.
            OSError: If the process cannot be started or reached.
            EOFError: If it has ended; the next question starts another one, unless it was stopped.
        """
        asking = self._reached()
        asking.send((reading, folders, so_far))
        found: ShownNumbers | str = asking.recv()
        if isinstance(found, str):
            raise ConfigError(found)
        return found

    def stop(self) -> None:
        """End it at once; whoever waits for its answer gets an EOFError."""
        with self._starting:
            self._stopped = True
            if self._process is not None:
                self._process.kill()
                self._process.join()

    def _reached(self) -> Connection:
        with self._starting:
            if self._stopped:
                raise EOFError
            if self._asking is None or self._process is None or not self._process.is_alive():
                context = get_context("spawn")  # a fork of threads may wait for ever
                self._asking, theirs = context.Pipe()
                self._process = context.Process(target=_answer, args=(theirs,), name="measuring", daemon=True)
                self._process.start()
                theirs.close()
            return self._asking


def _answer(asked: Connection) -> None:
    """Measure in this process until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which then ends this process
    while True:
        try:
            question = asked.recv()
        except EOFError:
            return
        try:
            answer: ShownNumbers | str = shown_numbers(*question)
        except (ConfigError, OSError) as fault:
            answer = str(fault)
        asked.send(answer)
