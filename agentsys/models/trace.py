"""The trace of one case: a tree of spans, what each model call cost, and who watches.

A run opens a `Tracer` for each case (`use_tracer`). Code that acts - a defense's worker, a wrapped
model, the tool runtime - adds to it through the functions below and never needs to be handed
it. Outside a run (a defense used in AgentDojo's own benchmark, a notebook) everything still
works and is simply not kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

from agentdojo.types import ChatMessage

from agentsys.models.budget import UsageLog
from agentsys.models.chat import ChatReply, ChatRequest, ModelError, Usage


@dataclass
class ModelCall:
    """One question to a model, answered or failed, for accounting."""

    role: str
    usage: Usage
    cost_usd: float | None
    latency_s: float
    model_id: str
    attempts: int
    from_cache: bool
    notes: tuple[str, ...] = ()
    error: str | None = None
    """Why there was no reply (an `ErrorKind`); None: there was one."""
    odd: Mapping[str, int] = field(default_factory=dict)
    """What was odd about it and about those asked for again before: see agentsys.models.reply_checks."""
    ending: str | None = None
    """How the reply ended (an `Ending`); None: nobody said."""
    reason: str = ""
    """The server's own word for that, where the ending does not say it."""
    provider: str = ""
    system_fingerprint: str = ""


@dataclass
class Span:
    """A node of the agent tree.

    AgentSys's hierarchy must be readable from the spans alone: a worker's parent is the agent
    whose tool call it serves, a validator's parent is the worker it judged.
    """

    id: int
    """Unique within the case, in order of opening."""
    parent_id: int | None
    """The enclosing span; None for a root."""
    kind: str
    """`main`, `worker`, `validator`, `sanitizer`, `tool`, `planner`, ..."""
    name: str | None = None
    """What it is about, e.g. the tool's name."""
    attempt: int = 0
    """Which run of the pipeline (AgentDojo may run it up to three times)."""
    messages: Sequence[ChatMessage] = ()
    """The final context of an agent; empty for spans that hold no conversation."""
    calls: list[ModelCall] = field(default_factory=list)
    """Model calls made directly under this span."""
    decision: dict[str, Any] = field(default_factory=dict)
    """What was decided or done, as JSON-ready data (a verdict, cut spans, a tool's arguments)."""
    duration_s: float = 0.0
    """Wall time between opening and closing."""

    @property
    def usage(self) -> Usage:
        """Tokens of the calls made directly under this span."""
        return sum((call.usage for call in self.calls), Usage())


class Watcher(Protocol):
    """Looks on while a case runs (exposure of the injection, for one)."""

    def note_request(self, request: ChatRequest) -> None:
        """A model is about to receive `request`."""

    def note_tool_result(self, value: object, error: str | None) -> None:
        """The environment's tool returned `value` (before any formatting) or `error`."""

    def holds_planted(self, text: str) -> bool:
        """True if the text of an attack stands in a text; for the record alone."""

    def note_rewritten_text(self, original: str, shown: str) -> None:
        """A defense wrote `shown` where `original` stood, in other characters but with the same content."""


@dataclass
class Tracer:
    """Everything that happened in one case."""

    spans: list[Span] = field(default_factory=list)
    watchers: list[Watcher] = field(default_factory=list)
    attempt: int = 0
    """The current run of the pipeline; the runner raises it."""
    executed_calls: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    """Tool calls that the runtime really ran, in order: name, arguments, error."""
    executed_attempts: list[int] = field(default_factory=list)
    """For each of `executed_calls`, the run of the pipeline it belongs to."""
    refused_attempts: list[int] = field(default_factory=list)
    """For each call that a defense refused and that stands in the messages all the same, the run of the
    pipeline it belongs to."""
    receipts: list[int] | None = None
    """Places in `executed_calls` of those whose tool said that it ran; None: the case's tools say nothing."""
    decision_points: list[tuple[int, int]] = field(default_factory=list)
    """For each of `executed_calls`, the reply that decided it: the agent's span and its number of replies."""
    last_main_messages: Sequence[ChatMessage] = ()
    """The context of the latest request by an acting role, kept for errored cases."""
    case: str = ""
    """Key of the case; `""` outside one."""
    usage_log: UsageLog | None = None
    """Where requests are booked; None: nowhere."""
    tokens: int = 0
    """Prompt and completion tokens of all calls so far."""
    _first_request_at: float | None = None
    """When a model was asked first (`time.monotonic`)."""
    _open_spans: list[Span] = field(default_factory=list)
    _latest_call: ModelCall | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False, compare=False)
    """Held while something is booked: a defense may ask questions, and run tools, in threads of its own."""

    @property
    def all_calls(self) -> list[ModelCall]:
        """The calls of all spans, in order."""
        return [call for span in self.spans for call in span.calls]

    @property
    def seconds(self) -> float:
        """Seconds since a model was asked first; 0 before that."""
        return 0.0 if self._first_request_at is None else time.monotonic() - self._first_request_at

    def branch(self) -> Tracer:
        """Copy the trace as it is now, outside any span; what happens after is in one of the two."""
        return replace(self, spans=list(self.spans), watchers=list(self.watchers), _open_spans=[])

    @contextmanager
    def span(self, kind: str, name: str | None = None) -> Iterator[Span]:
        """Open a span under the current one; it closes, with its duration, when the block ends."""
        opened = self._add_span(kind, name)
        self._open_spans.append(opened)
        start = time.perf_counter()
        try:
            yield opened
        finally:
            opened.duration_s = time.perf_counter() - start
            self._open_spans.pop()

    def _add_span(self, kind: str, name: str | None) -> Span:
        with self._lock:
            parent = self._open_spans[-1].id if self._open_spans else None
            self.spans.append(Span(len(self.spans), parent, kind, name, self.attempt))
            return self.spans[-1]

    def note_request(self, request: ChatRequest) -> None:
        """Tell the watchers that a request is about to be sent."""
        if self._first_request_at is None:
            self._first_request_at = time.monotonic()
        if request.role in ACTING_ROLES:
            self.last_main_messages = request.messages
        for watcher in self.watchers:
            watcher.note_request(request)

    def note_model_reply(self, role: str, reply: ChatReply, odd: Mapping[str, int] | None = None) -> None:
        """Book a reply under the current span, with what is odd about it."""
        paid = reply.usage, reply.cost_usd, reply.latency_s
        self._record_call(
            ModelCall(
                *(role, *paid, reply.model_id, reply.attempts, reply.from_cache, reply.notes),
                odd=odd or {},
                ending=reply.ending and reply.ending.value,
                reason=reply.reason,
                provider=reply.provider,
                system_fingerprint=reply.system_fingerprint,
            )
        )

    def note_failed_request(self, role: str, error: ModelError) -> None:
        """Book a question that ended in an error: what its answers cost was paid for."""
        kind = error.kind.value
        self._record_call(
            ModelCall(role, error.usage, error.cost_usd, 0.0, "", error.attempts, False, error=kind)
        )

    def note_unreadable_reply(self, flaw: ReplyFlaw) -> None:
        """Book that the current span's latest reply could not be used; the latest of all where it has none."""
        calls = self._open_spans[-1].calls if self._open_spans else []
        call = calls[-1] if calls else self._latest_call
        if call is not None:
            call.odd = {**call.odd, flaw.value: call.odd.get(flaw.value, 0) + 1}

    def _record_call(self, call: ModelCall) -> None:
        with self._lock:
            self.tokens += call.usage.prompt + call.usage.completion
            with nullcontext(self._open_spans[-1]) if self._open_spans else self.span("main") as current:
                current.calls.append(call)
            self._latest_call = call

    def note_tool_call(
        self, name: str, args: Mapping[str, Any], value: object, error: str | None, *, receipt: bool = False
    ) -> None:
        """Book a tool call that a runtime executed; with `receipt`, the tool itself said that it ran."""
        with self._lock:
            if receipt and self.receipts is not None:
                self.receipts.append(len(self.executed_calls))
            self.executed_calls.append((name, dict(args), error))
            self.executed_attempts.append(self.attempt)
            agent = next((span for span in reversed(self._open_spans) if span.calls), None)
            self.decision_points.append((-1, 0) if agent is None else (agent.id, len(agent.calls)))
            self._add_span("tool", name).decision = {"args": dict(args), "error": error}
            for watcher in self.watchers:
                watcher.note_tool_result(value, error)

    def note_refused_call(self, name: str, args: Mapping[str, Any], cause: str) -> None:
        """Book a tool call that a defense refused: it stands in the messages, and checks may not count it."""
        self.refused_attempts.append(self.attempt)
        with self.span(REFUSED_SPAN, name) as refused:
            refused.decision = {"allow": False, "args": dict(args), "cause": cause}

    def note_rewritten_text(self, original: str, shown: str) -> None:
        """Tell the watchers that `original` is passed on marked or encoded, as `shown`."""
        for watcher in self.watchers:
            watcher.note_rewritten_text(original, shown)

    def note_guard_verdict(self, node: Span, text: str, flagged: bool | None) -> None:
        """Record a guard's verdict on a text in the span's decision, and the truth if there are watchers.

        The truth is recorded as `planted`: true if the text holds an attack's text. No defense reads it.

        Args:
            node: The span.
            text: The text that the guard judged.
            flagged: The verdict; None if the guard gave none that can be read. Recorded as `flagged`.
        """
        truth = {"planted": any(watcher.holds_planted(text) for watcher in self.watchers)}
        node.decision |= {"flagged": flagged, **(truth if self.watchers else {})}


class ReplyFlaw(Enum):
    """Kind of oddity (`ModelCall.odd`) of a reply that its reader could not use."""

    UNREAD = "unreadable"
    """It held nothing of what was asked for."""
    ECHOED = "echoed"
    """It held the question's own words: the example, or the name of a type in place of a value."""
    WRONG_FORM = "wrong_form"
    """It held something of what was asked for, with other fields or types than were declared."""


REFUSED_SPAN = "refused"
"""Kind of the span of a call that a defense refused."""
ACTING_ROLES = frozenset({"agent", "main"})
"""Roles whose context decides what is done for the user: what reaches them is 'shown'."""

_CURRENT: ContextVar[Tracer | None] = ContextVar("agentsys_tracer", default=None)


@contextmanager
def use_tracer(tracer: Tracer) -> Iterator[Tracer]:
    """Make `tracer` the current one inside the block, for this thread's context only."""
    token = _CURRENT.set(tracer)
    try:
        yield tracer
    finally:
        _CURRENT.reset(token)


def get_current_tracer() -> Tracer:
    """The case's tracer, or a fresh one that nobody keeps when no run is under way."""
    return _CURRENT.get() or Tracer()


@contextmanager
def span(kind: str, name: str | None = None) -> Iterator[Span]:
    """Open a span of the current case (see `Tracer.span`)."""
    with get_current_tracer().span(kind, name) as opened:
        yield opened


def mark_reply_unreadable(flaw: ReplyFlaw = ReplyFlaw.UNREAD) -> None:
    """Book it of the latest reply (see `Tracer.note_unreadable_reply`); called by whoever reads replies."""
    get_current_tracer().note_unreadable_reply(flaw)
