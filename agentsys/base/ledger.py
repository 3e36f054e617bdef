"""The ledger of a log folder: one line for every request sent to a model. It only grows.

Records hold the cost of a case's last run. The ledger also has requests that are in no record: earlier runs of a case,
cases dropped when a run was stopped, checks before a run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agentsys.base.atomic_file import PRIVATE, open_file

LEDGER_FILE = "ledger.jsonl"
"""File name in a log folder's `.agentsys`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LedgerEntry:
    """One request that was sent."""

    at: float
    """Seconds since the epoch at the end of the request."""
    case: str
    """Key of its case; `""`: none (a check before the run)."""
    model: str
    role: str
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = 0.0
    """US dollars; None if the model has no price; 0 for a request without an answer, as no usage was reported."""
    error: str | None = None
    """`ErrorKind` of an unusable answer; None for a usable one."""
    uncounted: int = 0
    """1 if the answer came without a count of tokens, else 0."""


@dataclass(eq=False)
class Ledger:
    """Appends lines to a ledger. Safe with several threads and processes, also if one of them is killed.

    A line is one write to the end of the file, so lines of several processes never mix. Each begins with its line
    break, so one that a full disk or a kill has torn takes no other with it.
    """

    path: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _file: int | None = field(default=None, init=False)

    def add(self, entry: LedgerEntry) -> None:
        """Append one line. A failed write is only a warning, so that the answer is not lost."""
        line = b"\n" + json.dumps(vars(entry), separators=(",", ":")).encode()
        try:
            os.write(self._open_file(), line)
        except OSError as error:
            _log.warning("A request could not be booked in %s: %s", self.path, error.strerror)

    def _open_file(self) -> int:
        """Open the file once; later writes need no lock."""
        with self._lock:
            if self._file is None:
                self._file = open_file(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE)
        return self._file


@dataclass
class LedgerTotals:
    """Totals over several requests."""

    requests: int = 0
    failed: int = 0
    """Requests without a usable answer."""
    tokens: int = 0
    cost_usd: float = 0.0
    """US dollars of the requests with a known price."""
    failed_usd: float = 0.0
    unpriced: int = 0
    """Requests whose price is not known."""
    uncounted: int = 0
    """Requests whose tokens are not known."""

    def add(self, entry: LedgerEntry) -> None:
        """Count one request."""
        self.requests += 1
        self.failed += entry.error is not None
        self.tokens += entry.prompt + entry.completion
        self.unpriced += entry.cost_usd is None
        self.uncounted += entry.uncounted
        self.cost_usd += entry.cost_usd or 0.0
        self.failed_usd += (entry.cost_usd or 0.0) if entry.error is not None else 0.0

    @property
    def summary_line(self) -> str:
        """One sentence for tables; `""` if nothing was sent."""
        if not self.requests:
            return ""
        unpriced = f" ({self.unpriced} without a price)" if self.unpriced else ""
        cost = f"${self.cost_usd:.2f}{unpriced}" if self.unpriced < self.requests else "cost unknown"
        uncounted = f" ({self.uncounted} requests without a count)" if self.uncounted else ""
        answered = self.requests - self.failed
        parts = f": {answered:,} with an answer (${self.cost_usd - self.failed_usd:.2f}) and"
        failed = f"{parts} {self.failed:,} without (${self.failed_usd:.2f})" if self.failed else ""
        return (
            f"Sent in all, by the ledger: {self.requests:,} requests, {self.tokens:,} tokens{uncounted}, "
            f"{cost}{failed}. This sum counts every request, also of cases that were run again or dropped;"
            " replies from the cache are not in it."
        )


def read_ledger(path: Path) -> Iterator[LedgerEntry]:
    """Yield the entries of a ledger; invalid lines (torn or edited) are skipped."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                if (entry := _parse_entry(line)) is not None:
                    yield entry
    except OSError:
        return


def sum_ledgers(folders: Iterable[Path]) -> LedgerTotals:
    """Sum the ledgers of log folders. A subfolder of a log folder counts its own cases only."""
    total = LedgerTotals()
    for path, within in dict.fromkeys(ledger for folder in folders for ledger in _find_ledgers(folder)):
        for entry in read_ledger(path):
            if entry.case.startswith(within):
                total.add(entry)
    return total


def _find_ledgers(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (ledger, required prefix of its cases' keys)."""
    if (folder.parent / ".agentsys" / LEDGER_FILE).is_file() and not (folder / ".agentsys").exists():
        yield folder.parent / ".agentsys" / LEDGER_FILE, f"{folder.name}/"
        return
    for path in (folder, *sorted(folder.glob("*/"))):
        if (path / ".agentsys" / LEDGER_FILE).is_file():
            yield path / ".agentsys" / LEDGER_FILE, ""


def _parse_entry(line: bytes) -> LedgerEntry | None:
    """Parse one line of a ledger; None if it is torn, edited or of another form."""
    try:
        entry = LedgerEntry(**json.loads(line))
        counts = (entry.prompt, entry.completion, entry.cached, entry.reasoning, entry.uncounted)
        whole = all(isinstance(count, int) for count in counts) and isinstance(entry.case, str)
        priced = entry.cost_usd is None or math.isfinite(entry.cost_usd)
        return entry if whole and priced else None
    except (ValueError, TypeError, RecursionError, OverflowError):  # OverflowError: a price of 400 digits.
        return None
