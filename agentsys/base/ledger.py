"""The ledger of a log folder: one line for every request that was sent to a model. It only ever grows.

Records say what a case cost when it was last run; the ledger has also what is in no record: attempts of a
case that was run again, cases dropped when a run was stopped, checks before a run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentsys.base.atomic_file import PRIVATE, open_file

LEDGER_FILE = "ledger.jsonl"
"""In a log folder's `.agentsys`."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LedgerEntry:
    """One request that was sent."""

    at: float
    """Seconds since the epoch, when its end was known."""
    case: str
    """Key of the case it was sent for; `""`: for none (a check before the run)."""
    model: str
    role: str
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_usd: float | None = 0.0
    """None where the model has no price; 0 for a request without an answer: nothing was reported."""
    error: str | None = None
    """Why its answer could not be used (an `ErrorKind`); None: it could."""
    uncounted: int = 0
    """Answers in it that came without a count of tokens: 0 or 1."""


class Ledger:
    """Adds lines to a ledger. Safe with many threads and many processes, and when one of them is killed.

    A line is one write to the end of the file, so lines of several processes never mix; a line torn by a
    full disk is left behind, and the next one starts afresh.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: int | None = None

    def add(self, entry: LedgerEntry) -> None:
        """Add one line. A disk that does not take it is a warning: the answer must not be lost."""
        line = json.dumps(vars(entry), separators=(",", ":")).encode() + b"\n"
        try:
            os.write(self._open_file(), line)
        except OSError as error:
            _log.warning("A request could not be booked in %s: %s", self.path, error.strerror)

    def _open_file(self) -> int:
        """The file. Writing to it needs no lock, which many threads would only wait for."""
        with self._lock:
            if self._file is None:
                file = open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, PRIVATE)
                size = os.fstat(file).st_size
                if size and os.pread(file, 1, size - 1) != b"\n":
                    os.write(file, b"\n")
                self._file = file
        return self._file


@dataclass
class LedgerTotals:
    """What some requests came to."""

    requests: int = 0
    failed: int = 0
    """Of them, those whose answer could not be used."""
    tokens: int = 0
    cost_usd: float = 0.0
    """Of those with a known price."""
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
        """One sentence for tables; `""` where nothing was sent."""
        if not self.requests:
            return ""
        unpriced = f" ({self.unpriced} without a price)" if self.unpriced else ""
        cost = f"${self.cost_usd:.2f}{unpriced}" if self.unpriced < self.requests else "cost unknown"
        uncounted = f" ({self.uncounted} requests without a count)" if self.uncounted else ""
        failed = f" {self.failed} had no usable answer (${self.failed_usd:.2f})." if self.failed else ""
        return (
            f"Sent in all, by the ledger: {self.requests:,} requests, {self.tokens:,} tokens{uncounted}, "
            f"{cost}; cases that were run again or dropped are in it, replies from the cache are not.{failed}"
        )


def read_ledger(path: Path) -> Iterator[LedgerEntry]:
    """The entries of a ledger; lines that are none (torn, or somebody's edits) are passed over."""
    try:
        with path.open("rb") as lines:
            for line in lines:
                if (entry := _parse_entry(line)) is not None:
                    yield entry
    except OSError:
        return


def sum_ledgers(folders: Iterable[Path]) -> LedgerTotals:
    """What the ledgers of some log folders come to. A folder inside a log folder counts with its own cases."""
    total = LedgerTotals()
    for path, within in dict.fromkeys(place for folder in folders for place in _find_ledgers(folder)):
        for entry in read_ledger(path):
            if entry.case.startswith(within):
                total.add(entry)
    return total


def _find_ledgers(folder: Path) -> Iterator[tuple[Path, str]]:
    """(ledger, what its cases' keys must begin with)."""
    if (folder.parent / ".agentsys" / LEDGER_FILE).is_file() and not (folder / ".agentsys").exists():
        yield folder.parent / ".agentsys" / LEDGER_FILE, f"{folder.name}/"
        return
    for path in (folder, *sorted(folder.glob("*/"))):
        if (path / ".agentsys" / LEDGER_FILE).is_file():
            yield path / ".agentsys" / LEDGER_FILE, ""


def _parse_entry(line: bytes) -> LedgerEntry | None:
    try:
        entry = LedgerEntry(**json.loads(line))
        counts = (entry.prompt, entry.completion, entry.cached, entry.reasoning, entry.uncounted)
        whole = all(isinstance(count, int) for count in counts) and isinstance(entry.case, str)
        priced = entry.cost_usd is None or math.isfinite(entry.cost_usd)
        return entry if whole and priced else None
    except (ValueError, TypeError, RecursionError, OverflowError):  # the last: a price of 400 digits
        return None
