"""`Collector`: gathers a model's requests from all cases, sends them in batches, hands out the replies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agentsys.models.batches.crew import Crew
from agentsys.models.batches.door import BatchDoor, BatchLine, BatchPolicy, Outcome
from agentsys.models.batches.journal import BatchEntry, BatchJournal
from agentsys.models.errors import Consequence, ErrorKind, ModelError

_LOG = logging.getLogger(__name__)

_MOST_BYTES = 50_000_000
"""Of a batch's bodies; OpenAI takes 200 MB, Anthropic 256."""
_TICK_S = 0.05
_MOST_UNREADABLE = 5
"""Times that results which cannot be read are fetched again."""


@dataclass
class _Slot:
    """One request and what came of it."""

    custom_id: str
    line: BatchLine | None = None
    """None: sent by an earlier process, and nobody has asked for it yet."""
    outcome: Outcome | Exception | None = None
    since: float = field(default_factory=time.monotonic)
    entry: BatchEntry | None = None
    """Batch it is in."""
    taken: bool = False
    """Whether somebody has it, who paid for it."""
    done: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Sent:
    """A batch that was sent, or may have been."""

    entry: BatchEntry
    slots: Mapping[str, _Slot]
    earlier: bool
    """Whether an earlier process sent it."""
    trouble: ModelError | None = None
    """Why nobody knows whether it was sent."""
    pause_s: float = 0.0
    look_at: float = 0.0
    unreadable: int = 0


@dataclass(frozen=True)
class BatchAnswer:
    """What came of a request."""

    outcome: Outcome
    paid_before: bool
    """Whether it was handed out once already: to another case with the same request, or before a kill."""


class Collector:
    """Used from the threads of all cases that ask one model; a thread of its own does the work."""

    def __init__(self, door: BatchDoor, policy: BatchPolicy, journal: BatchJournal, crew: Crew) -> None:
        self._door, self._policy, self._journal, self._crew = door, policy, journal, crew
        self._changed = threading.Condition()
        self._slots: dict[str, _Slot] = {}
        self._pending: list[_Slot] = []
        self._sent: list[_Sent] = []
        self._knows_earlier = False
        self._ended: list[BatchEntry] = []
        self._thread: threading.Thread | None = None

    def answer(self, line: BatchLine) -> BatchAnswer:
        """Wait for what comes of a request, which may take a day.

        Two requests of one custom id are one, of an earlier process too; after an error it is sent again.

        Raises:
            ConfigError: If the server has no batches.
        """
        with self._changed:
            if not self._knows_earlier:
                self._knows_earlier = True
                self._sent += self._of_earlier_processes()
            slot = self._slots.get(line.custom_id)
            if slot is None or isinstance(slot.outcome, Exception):
                slot = self._slots[line.custom_id] = _Slot(line.custom_id, line)
                self._pending.append(slot)
            elif slot.line is None:
                slot.line = line
            self._start()
        with self._crew.waiting():
            slot.done.wait()
        return self._handed(slot)

    def settle(self) -> None:
        """Forget the batches that have ended: every reply of theirs is in a record, or needed no more."""
        with self._changed:
            self._journal.settle(self._ended)
            self._ended.clear()

    def _handed(self, slot: _Slot) -> BatchAnswer:
        if isinstance(slot.outcome, Exception) and not isinstance(slot.outcome, ModelError):
            raise slot.outcome
        assert slot.outcome is not None
        if isinstance(slot.outcome, ModelError):
            return BatchAnswer(_own(slot.outcome), False)
        with self._changed:
            before, slot.taken = slot.taken, True
            if not before and slot.entry is not None:
                self._journal.took(slot.entry, slot.custom_id)
        return BatchAnswer(slot.outcome, before)

    def _of_earlier_processes(self) -> list[_Sent]:
        found = []
        for entry in self._journal.entries():
            taken = self._journal.taken(entry)
            # Of two batches with one request the later one counts: in the earlier it had failed.
            slots = {one: _Slot(one, entry=entry, taken=one in taken) for one in entry.custom_ids}
            self._slots.update(slots)
            found.append(_Sent(entry, slots, earlier=True))
        return found

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="batches", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._sent and not self._pending:
                    self._thread = None
                    return
                due = self._due()
            if due:
                self._submit(due)
            now = time.monotonic()
            for one in [one for one in self._sent if one.look_at <= now]:
                self._look_at(one)
            with self._changed:
                self._changed.wait(_TICK_S if self._pending else self._until_next_look())

    def _until_next_look(self) -> float:
        times = [one.look_at - time.monotonic() for one in self._sent]
        return max(0.0, min(times, default=0.0))

    def _due(self) -> list[_Slot]:
        """The requests to be sent now, taken off the pending ones."""
        if not self._pending:
            return []
        full = len(self._pending) >= self._policy.requests
        late = time.monotonic() - self._pending[0].since >= self._policy.wait_s
        if not (full or late or self._crew.quiet_s >= self._policy.quiet_s):
            return []
        room, most = _MOST_BYTES, 0
        for slot in self._pending[: self._policy.requests]:
            room -= len(slot.line.body) if slot.line else 0
            if room < 0 and most:
                break
            most += 1
        due, self._pending = self._pending[:most], self._pending[most:]
        return due

    def _submit(self, due: Sequence[_Slot]) -> None:
        lines = [slot.line for slot in due if slot.line is not None]
        entry = self._journal.intend([line.custom_id for line in lines])
        slots = {slot.custom_id: slot for slot in due}
        sent = _Sent(entry, slots, earlier=False)
        try:
            self._name(sent, self._door.submit(lines, entry.mark))
        except ModelError as error:
            if error.kind.consequence is not Consequence.RETRY:
                self._journal.drop(entry)
                return self._fail(slots.values(), error)
            # The answer may be all that was lost.
            sent.trouble = error
        except Exception as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
            self._journal.drop(entry)
            return self._fail(slots.values(), error)
        self._look_later(sent)
        with self._changed:
            self._sent.append(sent)
        return None

    def _name(self, sent: _Sent, batch_id: str) -> None:
        sent.entry = self._journal.sent(sent.entry, batch_id)
        for slot in sent.slots.values():
            slot.entry = sent.entry
        _LOG.info("batch %s: %d requests", batch_id, len(sent.slots))

    def _look_at(self, sent: _Sent) -> None:
        try:
            if sent.entry.batch_id is None:
                self._resolve(sent)
            else:
                self._collect(sent)
        except ModelError as error:
            self._look_failed(sent, error)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(sent, error)

    def _resolve(self, sent: _Sent) -> None:
        """Find out whether a batch was sent."""
        entry = sent.entry
        batch_id = self._door.find(entry.mark, entry.custom_ids, entry.since)
        if batch_id is not None:
            sent.pause_s, sent.look_at = 0.0, 0.0
            return self._name(sent, batch_id)
        self._journal.drop(entry)
        self._forget(sent)
        if sent.trouble is not None:
            return self._fail(sent.slots.values(), sent.trouble)
        return self._again(sent.slots.values())

    def _collect(self, sent: _Sent) -> None:
        found = self._door.collect(str(sent.entry.batch_id), sent.entry.custom_ids)
        if found is None:
            return self._look_later(sent)
        self._forget(sent)
        with self._changed:
            self._ended.append(sent.entry)
        good = {name: slot for name, slot in sent.slots.items() if isinstance(found.get(name), bytes)}
        for name, slot in good.items():
            slot.outcome = found[name]
            slot.done.set()
        failed = [slot for name, slot in sent.slots.items() if name not in good]
        if sent.earlier:
            # Nobody paid for these, and whoever asks now does so afresh.
            return self._again(failed)
        for slot in failed:
            told = found.get(slot.custom_id)
            self._fail([slot], told if isinstance(told, ModelError) else missing())
        return None

    def _look_failed(self, sent: _Sent, error: ModelError) -> None:
        sent.unreadable += error.kind is ErrorKind.MALFORMED_REPLY
        if sent.unreadable > _MOST_UNREADABLE:
            error = ModelError(ErrorKind.BAD_REQUEST, f"a batch's results cannot be read ({error})")
        if error.kind.consequence is Consequence.RETRY:
            return self._look_later(sent)
        return self._give_up(sent, error)

    def _give_up(self, sent: _Sent, error: Exception) -> None:
        # Its entry stays: what was paid for can be had once the trouble (a key that expired, say) is over.
        self._forget(sent)
        self._fail(sent.slots.values(), error)

    def _look_later(self, sent: _Sent) -> None:
        first = min(1.0, self._policy.poll_s)
        sent.pause_s = min(self._policy.poll_s, sent.pause_s * 1.5 or first)
        sent.look_at = time.monotonic() + sent.pause_s

    def _forget(self, sent: _Sent) -> None:
        with self._changed:
            self._sent.remove(sent)

    def _fail(self, slots: Iterable[_Slot], error: Exception) -> None:
        for slot in slots:
            slot.outcome = error
            slot.done.set()

    def _again(self, slots: Iterable[_Slot]) -> None:
        """Send requests of an earlier process that somebody waits for; the others are forgotten."""
        with self._changed:
            for slot in slots:
                if slot.line is not None:
                    slot.since = time.monotonic()
                    self._pending.append(slot)
                elif self._slots.get(slot.custom_id) is slot:
                    del self._slots[slot.custom_id]


def missing() -> ModelError:
    """The error for a request of which an ended batch says nothing."""
    return ModelError(ErrorKind.MALFORMED_REPLY, "the batch ended without an answer to this request")


def _own(error: ModelError) -> ModelError:
    """A copy: several may wait for one request, and each adds up what it cost it."""
    return ModelError(error.kind, str(error).partition(": ")[2], error.retry_after_s)
