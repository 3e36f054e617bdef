"""`BatchDesk`: batches behind a served model: taken in at once, worked through after a while, in any order.

Each line is answered as a single request would be, faults included: a line that would meet a failed answer
ends as a failed line, one whose connection would be reset is missing from the results, one that would be held
expires.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from agentsys.models.serving.exchange import Exchange
from agentsys.models.serving.responses import Delivery, Response
from agentsys.models.serving.wire import WireFormat


class LineEnd(StrEnum):
    """What became of a line in a batch; the values are Anthropic's words."""

    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    EXPIRED = "expired"
    CANCELED = "canceled"
    MISSING = "missing"
    """The results say nothing of it."""


@dataclass(frozen=True)
class ServedLine:
    """One request of a batch."""

    custom_id: str
    role: str
    body: bytes
    """As it would have been posted."""


@dataclass(frozen=True)
class LineResult:
    """One request's result."""

    custom_id: str
    end: LineEnd
    body: bytes = b""
    """Of the reply or the error, as JSON (or what a fault made of it)."""
    status: int = 200


@dataclass
class ServedBatch:
    """A batch and how far it is."""

    id: str
    wire: WireFormat
    lines: Sequence[ServedLine]
    created: float
    about: Mapping[str, object] = field(default_factory=dict)
    """What its format wants to say again."""
    cancelling: bool = False
    results: Sequence[LineResult] | None = None
    """None while it is under way."""

    def count(self, end: LineEnd) -> int:
        """Lines that ended so."""
        return sum(result.end is end for result in self.results or ())


class BatchDesk:
    """Takes batches in and works them through, each on a thread of its own."""

    def __init__(self, exchange: Exchange, delay_s: float, stopping: threading.Event) -> None:
        self._exchange, self._delay_s, self._stopping = exchange, delay_s, stopping
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._batches: dict[str, ServedBatch] = {}
        self.files: dict[str, bytes] = {}
        """OpenAI's: what was uploaded, and results."""

    def number(self) -> int:
        """A number that no other batch, file or line has."""
        with self._lock:
            return next(self._numbers)

    def open(self, wire: WireFormat, lines: Sequence[ServedLine], about: Mapping[str, object]) -> ServedBatch:
        """Take a batch in."""
        name = f"{'msgbatch' if wire.name == 'anthropic' else 'batch'}_{self.number()}"
        batch = ServedBatch(name, wire, lines, time.time(), about)
        with self._lock:
            self._batches[name] = batch
        threading.Thread(target=self._work, args=(batch,), name=name, daemon=True).start()
        return batch

    def refused(self, wire: WireFormat, about: Mapping[str, object]) -> ServedBatch:
        """Note a batch that was not taken in."""
        batch = ServedBatch(f"batch_{self.number()}", wire, (), time.time(), about, results=())
        with self._lock:
            self._batches[batch.id] = batch
        return batch

    def get(self, name: str) -> ServedBatch | None:
        """A batch by its id."""
        with self._lock:
            return self._batches.get(name)

    def newest_first(self) -> list[ServedBatch]:
        """All batches."""
        with self._lock:
            return list(reversed(self._batches.values()))

    def _work(self, batch: ServedBatch) -> None:
        end = time.monotonic() + self._delay_s
        while time.monotonic() < end and not batch.cancelling:
            if self._stopping.wait(min(0.02, self._delay_s)):
                return
        found = [self._result(batch, line) for line in batch.lines]
        batch.results = sorted(found, key=lambda one: hashlib.sha256(one.custom_id.encode()).digest())

    def _result(self, batch: ServedBatch, line: ServedLine) -> LineResult:
        if batch.cancelling:
            return LineResult(line.custom_id, LineEnd.CANCELED)
        response = self._exchange.respond(batch.wire, line.role, line.body, self.number())
        return _result_of(line.custom_id, response)


def _result_of(custom_id: str, response: Response) -> LineResult:
    match response.delivery:
        case Delivery.RESET:
            return LineResult(custom_id, LineEnd.MISSING)
        case Delivery.HOLD:
            return LineResult(custom_id, LineEnd.EXPIRED)
        case Delivery.CUT:
            body = response.body[: len(response.body) // 2]
            return LineResult(custom_id, LineEnd.SUCCEEDED, body)
    end = LineEnd.SUCCEEDED if response.status < 400 else LineEnd.ERRORED
    return LineResult(custom_id, end, response.body, response.status)
