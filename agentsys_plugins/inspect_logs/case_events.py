"""`CaseEvents`: a case's events in order, as Inspect's viewer draws them - a lane for each agent.

Records keep a span's calls, messages and children, not when within it each began. Calls are matched with
the replies of their context one by one, and children with the tool calls they stand for; times follow from
latencies and durations, one after the other. Messages are of our runner, AgentDojo's or DRIFT's; nothing in them
is trusted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Any

from inspect_ai.event import (
    ApprovalEvent,
    Event,
    InfoEvent,
    ModelEvent,
    ScoreEvent,
    SpanBeginEvent,
    SpanEndEvent,
    ToolEvent,
)
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    GenerateConfig,
    ModelOutput,
    StopReason,
)
from inspect_ai.scorer import Score
from inspect_ai.tool import ToolCall, ToolCallError

from agentsys.analysis.html_report.case_views import (
    as_text,
    take_mapping,
    take_name,
    take_number,
    take_objects,
)
from agentsys_plugins.inspect_logs.log_messages import (
    MessageConverter,
    build_tool_error,
    convert_arguments,
    convert_call_usage,
    find_stop_reason,
)

_ACTING_ROLES = frozenset({"agent", "main"})
_RAN, _REFUSED = "tool", "refused"
_GATE_KINDS = frozenset({"validator", "privileges"})
"""Kinds of span that come before the call they judge."""

StoredSpans = Sequence[Mapping[str, Any]]


class CaseEvents:
    """Events of one case, in order once `add_run` and then `add_scores` were called."""

    def __init__(self, model: str, began: datetime, identity: str, converter: MessageConverter) -> None:
        self.events: list[Event] = []
        self._converter = converter
        self._identity = identity
        self._model = model
        self._began = began
        self._clock = 0.0
        self._open: list[str] = []
        self._numbers = 0
        self._children: dict[int | None, list[Mapping[str, Any]]] = {}
        """Id of a span -> the spans in it that were not shown yet; None: spans that lie in no other."""

    def add_run(self, spans: StoredSpans, messages: object) -> None:
        """Everything the agents did."""
        known = {span["id"] for span in spans if isinstance(span.get("id"), int)}
        for span in spans:
            parent = span.get("parent_id")
            # A parent that opens later would be a loop.
            earlier = (
                isinstance(parent, int) and parent in known and parent < (take_number(span.get("id")) or 0)
            )
            self._children.setdefault(parent if earlier else None, []).append(span)
        roots = self._children.pop(None, [])
        with self._open_lane("solvers", "solvers"):
            if not roots:
                self._add_agent("main_agent", {"messages": messages})
            for root in roots:
                self._add_root(root, messages if root is roots[-1] else ())

    def add_scores(self, scores: Mapping[str, Score]) -> None:
        """Add the scores of the checks."""
        with self._open_lane("scorers", "scorers"):
            for scorer, score in scores.items():
                self._append_event(ScoreEvent, score=score, scorer=scorer, target="")

    def find_stop_reason_of(self, said: ChatMessageAssistant | None) -> StopReason:
        """Why the reply ended that said this last; `stop` where no event has it."""
        found = [
            choice.stop_reason
            for event in self.events
            if isinstance(event, ModelEvent)
            for choice in event.output.choices
            if said is not None and choice.message.content == said.content
        ]
        return found[-1] if found else "stop"

    def _add_root(self, span: Mapping[str, Any], messages: object) -> None:
        """A run of the pipeline: its acting agent is a span of its own, or it is the span itself."""
        if any(child.get("kind") == "main" for child in self._list_children(span)):
            self._add_spans(self._take_children(span))
        else:
            self._add_agent("main_agent", {**span, "messages": span.get("messages") or messages})

    def _add_span(self, span: Mapping[str, Any]) -> None:
        kind, decision = take_name(span.get("kind"), "span"), take_mapping(span.get("decision"))
        if kind in (_RAN, _REFUSED):
            self._add_lone_tool(span)
        elif span.get("messages") or span.get("calls") or self._list_children(span):
            label = {"main": "main_agent", "worker": "worker_agent"}.get(kind, kind)
            self._add_agent(label, span)
        if kind == "validator" and isinstance(decision.get("allow"), bool):
            self._add_verdict(span)
        elif decision and kind not in (_RAN, _REFUSED) and decision != {"finished": True}:
            self._append_event(InfoEvent, source=kind, data=convert_arguments(decision))

    def _add_agent(self, label: str, span: Mapping[str, Any]) -> None:
        began = self._clock
        with self._open_lane(label, "agent"):
            self._add_turns(span)
        self._clock = max(self._clock, began + (take_number(span.get("duration_s")) or 0.0))

    def _add_turns(self, span: Mapping[str, Any]) -> None:
        """An agent's replies in order, each followed by what its tool calls set going."""
        context = self._converter.convert(span.get("messages"))
        calls = deque(take_objects(span.get("calls")))
        inner = deque(self._take_children(span))
        acting = _ACTING_ROLES | {span.get("kind")}
        if not any(call.get("role") in acting for call in calls):
            acting = frozenset(call.get("role") for call in calls)
        for place, message in enumerate(context):
            if not isinstance(message, ChatMessageAssistant):
                continue
            # Calls of other roles came in between: their contexts are not stored.
            while calls and calls[0].get("role") not in acting:
                self._add_model_call(calls.popleft(), (), None)
            self._add_model_call(calls.popleft() if calls else {}, context[:place], message)
            for order, call in enumerate(message.tool_calls or ()):
                self._add_tool_call(
                    call, _find_result(context[place + 1 :], call, order), _take_spans(inner, call.function)
                )
        for call in calls:
            self._add_model_call(call, context, None)
        self._add_spans(inner)

    def _list_children(self, span: Mapping[str, Any]) -> StoredSpans:
        number = span.get("id")
        return self._children.get(number, []) if isinstance(number, int) else []

    def _take_children(self, span: Mapping[str, Any]) -> StoredSpans:
        """Hand out a span's children once, so that two spans of one id do not both show them."""
        children = self._list_children(span)
        if children:
            del self._children[span["id"]]
        return children

    def _add_spans(self, spans: Iterable[Mapping[str, Any]]) -> None:
        for span in spans:
            self._add_span(span)

    def _add_model_call(
        self, call: Mapping[str, Any], context: Sequence[ChatMessage], reply: ChatMessageAssistant | None
    ) -> None:
        """A question to a model; with no reply where it failed, or where its context is not stored."""
        model, role = take_name(call.get("model_id")) or self._model, take_name(call.get("role")) or "agent"
        took, began = take_number(call.get("latency_s")) or 0.0, self._clock
        self._clock += took
        choices = []
        if reply is not None:
            choices = [ChatCompletionChoice(message=reply, stop_reason=find_stop_reason(call, reply))]
        output = ModelOutput(
            model=model, choices=choices, usage=convert_call_usage(call) if call else None, time=took
        )
        self._append_event(
            ModelEvent,
            at=began,
            model=model,
            role=role,
            input=list(context),
            tools=[],
            tool_choice="auto",
            config=GenerateConfig(),
            output=output,
            error=None if call.get("error") is None else as_text(call["error"]),
            cache="read" if call.get("from_cache") else None,
            completed=self._convert_time(self._clock),
            working_time=took,
        )

    def _add_tool_call(
        self, call: ToolCall, result: ChatMessageTool | None, about: Sequence[Mapping[str, Any]]
    ) -> None:
        """A tool call of an agent: whether it ran, and the spans that stand for it."""
        ran = next((span for span in about if span.get("kind") == _RAN), None)
        error = result.error if result is not None else None
        stopped = next((span for span in about if _is_denial(span)), None)
        if ran is None and stopped is not None:
            cause = take_mapping(stopped.get("decision")).get("cause") or "denied by the defense"
            error = ToolCallError("approval", as_text(cause))
        before = [span for span in about if span.get("kind") in _GATE_KINDS]
        after = [span for span in about if span.get("kind") not in (_RAN, _REFUSED, *_GATE_KINDS)]
        for span in before:
            self._add_span(span)
        if stopped is not None and stopped.get("kind") == _REFUSED:
            self._add_verdict(stopped)
        self._append_event(
            ToolEvent,
            id=call.id,
            function=call.function,
            arguments=convert_arguments(call.arguments),
            result="" if result is None else result.text,
            error=error,
            failed=None if error is None else True,
        )
        if after:
            # Without a span of this type around them short workers are taken for helpers, and hidden.
            with self._open_lane(call.function, "tool"):
                self._add_spans(after)

    def _add_lone_tool(self, span: Mapping[str, Any]) -> None:
        """A tool call that stands in no stored message: a program's, or of an agent whose context is lost."""
        decision = take_mapping(span.get("decision"))
        error, function = decision.get("error"), take_name(span.get("name"), "unknown tool")
        failure = None if error is None else build_tool_error(error)
        if span.get("kind") == _REFUSED:
            self._add_verdict(span)
            failure = ToolCallError("approval", as_text(decision.get("cause")))
        self._append_event(
            ToolEvent,
            id=f"span-{as_text(span.get('id'))}",
            function=function,
            arguments=convert_arguments(decision.get("args")),
            result="",
            error=failure,
        )

    def _add_verdict(self, span: Mapping[str, Any]) -> None:
        """A verdict, in the lane of the agent that was judged."""
        decision = take_mapping(span.get("decision"))
        call = take_mapping(decision.get("call"))
        function = take_name(call.get("tool")) or take_name(span.get("name"), "unknown tool")
        args = convert_arguments(call.get("args") or decision.get("args"))
        self._append_event(
            ApprovalEvent,
            message="",
            call=ToolCall(id=f"span-{as_text(span.get('id'))}", function=function, arguments=args),
            approver=take_name(span.get("kind"), "defense"),
            decision="approve" if decision.get("allow") else "reject",
            explanation=as_text(convert_arguments(decision)),
        )

    @contextmanager
    def _open_lane(self, label: str, kind: str) -> Iterator[None]:
        self._numbers += 1
        identity = f"span-{self._numbers}"
        self._append_event(
            SpanBeginEvent, id=identity, inside=identity, parent_id=self._current_lane, type=kind, name=label
        )
        self._open.append(identity)
        yield
        self._append_event(SpanEndEvent, id=identity)
        self._open.pop()

    @property
    def _current_lane(self) -> str | None:
        return self._open[-1] if self._open else None

    def _append_event(
        self, kind: Any, *, at: float | None = None, inside: str | None = None, **fields: Any
    ) -> None:
        began = self._clock if at is None else at
        time, span = self._convert_time(began), inside or self._current_lane
        # Inspect draws an id where none is given, which takes as long as all the rest of an event.
        uuid = f"{self._identity}-{len(self.events)}"
        self.events.append(kind(uuid=uuid, timestamp=time, working_start=began, span_id=span, **fields))

    def _convert_time(self, seconds: float) -> datetime:
        return self._began + timedelta(seconds=seconds)


def _take_spans(inner: deque[Mapping[str, Any]], function: str) -> list[Mapping[str, Any]]:
    """Take the spans that stand for one call off the front of an agent's children.

    Those before its execution (a validator, say), the execution itself if it was executed, and what came of
    its output (workers, sanitizers), up to the next call's.
    """
    kinds = [span.get("kind") for span in inner]
    first = next((place for place, kind in enumerate(kinds) if kind in (_RAN, _REFUSED)), None)
    if first is not None and inner[first].get("name") == function:
        end = first + 1
        while end < len(kinds) and kinds[end] not in (_RAN, _REFUSED, *_GATE_KINDS):
            end += 1
    else:
        end = 0
        while end < len(kinds) and kinds[end] in _GATE_KINDS and inner[end].get("name") in (None, function):
            end += 1
    return [inner.popleft() for _ in range(end)]


def _is_denial(span: Mapping[str, Any]) -> bool:
    return span.get("kind") == _REFUSED or (
        span.get("kind") == "validator" and take_mapping(span.get("decision")).get("allow") is False
    )


def _find_result(later: Sequence[ChatMessage], call: ToolCall, order: int) -> ChatMessageTool | None:
    """The tool's message that answers a call: the one with its id, else the one in its place."""
    answers = takewhile(lambda message: isinstance(message, ChatMessageTool), later)
    results = [message for message in answers if isinstance(message, ChatMessageTool)]
    in_place = results[order] if order < len(results) else None
    return next((result for result in results if result.tool_call_id == call.id), in_place)
