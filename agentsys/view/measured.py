"""`MeasuredRuns`: the tables and figures of followed runs, measured anew as cases come."""

from __future__ import annotations

import logging
import threading
import time

from agentsys.analysis.html_report.build import page_numbers
from agentsys.analysis.html_report.page import PageNumbers, numbers_page
from agentsys.analysis.tables.report import report
from agentsys.errors import ConfigError
from agentsys.records.unfinished import unfinished_in, unfinished_lines
from agentsys.view.followed import FollowedRuns

_LOG = logging.getLogger(__name__)

PAUSE_S = 2.0
"""Between two measurements, and at least eight times as long as one takes: cases come first."""


class MeasuredRuns:
    """Measures from a thread of its own, from `start` to `stop`.

    Args:
        runs: Whose numbers; it is told when there are new ones.
    """

    def __init__(self, runs: FollowedRuns) -> None:
        self._runs = runs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep_measuring, name="measured-runs", daemon=True)
        self.version = 0
        """Grows with every measurement."""
        self.html = ""
        """A document with the numbers; empty before the first measurement."""
        self.numbers: PageNumbers | None = None
        self.planned = ""
        """What is planned and has no record yet, in a sentence; empty where nothing is."""

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End it, after the measurement under way. May be called twice."""
        self._stopping.set()

    def _keep_measuring(self) -> None:
        measured = 0
        while not self._stopping.is_set():
            version, took = self._runs.version, 0.0
            if version != measured and not self._runs.reading_files:
                started = time.monotonic()
                self._measure()
                measured, took = version, time.monotonic() - started
            self._stopping.wait(max(PAUSE_S, 8 * took) if took else 0.2)

    def _measure(self) -> None:
        reading = self._runs.reading
        try:
            numbers = page_numbers(reading, report(reading))
            planned = " ".join(unfinished_lines(unfinished_in(self._runs.folders)))
        except (ConfigError, OSError) as fault:  # what the next files may mend
            _LOG.warning("Cannot measure the runs: %s", fault)
            return
        self.html, self.numbers, self.planned = numbers_page(numbers), numbers, planned
        self.version += 1
        self._runs.wake()
