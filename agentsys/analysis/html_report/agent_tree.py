"""`SpanView`: the agent tree of a case - who worked for whom, what was decided, what it cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

from agentsys.analysis.html_report.conversation import MessageView, Writer
from agentsys.analysis.html_report.loose import mapping, name, number, objects

DEEPEST = 12
"""Levels shown; deeper spans stand at this level (AgentSys's own limit is far below)."""

MOST_SPANS = 1_000
"""Spans shown of one case."""

Tone = Literal["good", "bad", "note"]


class DecisionView(TypedDict):
    """The decision of a span, in a word or two."""

    label: str
    tone: Tone
    """`bad`: something was stopped or failed; `good`: it was allowed; `note`: neither."""


class SpanView(TypedDict):
    """One node, listed after its parent."""

    kind: str
    name: NotRequired[str]
    parent: NotRequired[int]
    """Place of the parent in the list; absent for a root."""
    decision: NotRequired[DecisionView]
    detail: NotRequired[int]
    """Number of the text: the whole decision as JSON."""
    tokens: NotRequired[tuple[int, int]]
    """Prompt and completion tokens of this span's own model calls; absent where one was not counted."""
    calls: NotRequired[int]
    """Its model calls."""
    duration_s: NotRequired[float]
    attempt: NotRequired[int]
    """Which run of the pipeline, where there was more than one."""
    messages: NotRequired[list[MessageView]]


def span_views(stored: object, writer: Writer) -> list[SpanView]:
    """The tree as a list in order of opening.

    Args:
        stored: `spans` of a record. Ids that are missing, repeated or point forward make roots, so
            that no stored tree can be a loop.
        writer: Takes the texts.
    """
    views: list[SpanView] = []
    places: dict[object, _Place] = {}
    for span in objects(stored)[:MOST_SPANS]:
        view = _view(span, writer)
        parent = _parent(span, places)
        if parent is not None:
            view["parent"] = parent.index
        depth = 0 if parent is None else parent.depth + 1
        where = _Place(len(views), depth) if depth < DEEPEST or parent is None else parent
        if isinstance(span.get("id"), int):
            places.setdefault(span["id"], where)
        views.append(view)
    return views


def decision_view(kind: str, decision: Mapping[str, Any]) -> DecisionView | None:
    """A decision in a word or two; None where nothing was decided.

    Args:
        kind: The span's kind.
        decision: The decision as a defense stored it; baselines of other people may store anything.
    """
    if isinstance(decision.get("allow"), bool):
        return _label("allowed", "good") if decision["allow"] else _label("denied", "bad")
    if cut := number(decision.get("spans_cut")):
        return _label(f"{cut:.0f} passage{'s' if cut > 1 else ''} cut", "bad")
    if kind == "sanitizer":
        return _label("nothing cut", "good")
    if failure := decision.get("failure"):
        return _label(f"ended: {name(failure, 'failure')}", "bad")
    if kind == "tool" and decision.get("error"):
        return _label("tool error", "bad")
    if decision.get("finished") is False:
        return _label("not finished", "bad")
    if removed := number(decision.get("marks_removed")):
        return _label(f"{removed:.0f} marks removed", "note")
    return None


@dataclass(frozen=True)
class _Place:
    """The place where a span's children hang."""

    index: int
    depth: int


def _parent(span: Mapping[str, Any], places: Mapping[object, _Place]) -> _Place | None:
    parent_id = span.get("parent_id")
    return places.get(parent_id) if isinstance(parent_id, int) else None


def _view(span: Mapping[str, Any], writer: Writer) -> SpanView:
    kind, decision = name(span.get("kind"), "unknown"), mapping(span.get("decision"))
    view: SpanView = {"kind": kind}
    if span_name := name(span.get("name")):
        view["name"] = span_name
    if decided := decision_view(kind, decision):
        view["decision"] = decided
    if decision and decision != {"finished": True}:
        view["detail"] = writer.text(decision)
    if calls := objects(span.get("calls")):
        if not _sum(calls, "uncounted"):
            view["tokens"] = (_sum(calls, "prompt"), _sum(calls, "completion"))
        view["calls"] = len(calls)
    if (duration := number(span.get("duration_s"))) is not None:
        view["duration_s"] = round(duration, 4)
    if attempt := number(span.get("attempt")):
        view["attempt"] = int(attempt)
    if messages := writer.messages(span.get("messages")):
        view["messages"] = messages
    return view


def _sum(calls: Sequence[Mapping[str, Any]], key: str) -> int:
    return int(sum(number(call.get(key)) or 0 for call in calls))


def _label(label: str, tone: Tone) -> DecisionView:
    return {"label": label, "tone": tone}
