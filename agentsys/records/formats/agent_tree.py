"""`AgentTree`: what the spans of one of our records tell beyond the acting agent's own messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsys.payload_lines import PayloadLines
from agentsys.records.context_facts import measure_context

_TOOL = "tool"
_WORKER = "worker"
_GATE = "gate"
"""Span kinds (agentsys.models.trace). Of the agents that are not the acting one, only workers are
offered tools: validators, sanitizers and planners cannot call any."""


@dataclass(frozen=True, slots=True)
class SpanTotals:
    """Sums over all spans, all attempts included: what they did and what they cost was real."""

    calls: dict[str, int] = field(default_factory=dict)
    """Tool -> executed calls, sorted by name."""
    decisions: dict[str, int] = field(default_factory=dict)
    """See `CaseRow.decisions`."""
    worker_rounds_exposed: int = 0
    """Replies that workers gave with the payload in their context."""
    worker_chars: int | None = 0
    """Characters that tools brought into workers' contexts: the output each was given to read, and the
    results of its own calls. None where a worker's span does not say how much it was given."""
    replies: dict[str, str] = field(default_factory=dict)
    """Model id that replies named -> the role that was answered first."""
    odd_replies: dict[str, dict[str, int]] = field(default_factory=dict)
    """See `CaseRow.odd_replies`."""
    gates: dict[str, int] = field(default_factory=dict)
    """See `CaseRow.gates`."""
    guards: dict[str, dict[str, int]] = field(default_factory=dict)
    """See `CaseRow.guards`."""


def sum_spans(spans: Sequence[Any], lines: PayloadLines) -> SpanTotals:
    """Look through the spans of a record.

    Args:
        spans: The spans of a `StoredBlock`: plain data whose form was checked.
        lines: The payload's lines to look for in workers' contexts; empty in benign cases.
    """
    calls: Counter[str] = Counter()
    decisions: Counter[str] = Counter()
    rounds, chars, known = 0, 0, True
    for span in spans:
        decision = span.get("decision") or {}
        _count_decision(decision, decisions)
        if span.get("kind") == _TOOL:
            calls[str(span.get("name"))] += 1
        elif span.get("kind") == _WORKER:
            seen = measure_context(span.get("messages") or (), lines)
            rounds += seen.rounds_exposed
            chars += seen.result_chars + _int_or_zero(decision.get("output_chars"))
            known = known and "output_chars" in decision
    return SpanTotals(
        dict(sorted(calls.items())),
        dict(decisions),
        rounds,
        chars if known else None,
        find_answered_roles(spans),
        count_odd_replies(spans),
        count_gate_rulings(spans),
        count_guard_verdicts(spans),
    )


def count_gate_rulings(spans: Sequence[Any]) -> dict[str, int]:
    """`filter/outcome/tool` -> calls that a filter ruled on before they ran."""
    found: Counter[str] = Counter()
    for span in spans:
        decision = span.get("decision") or {}
        if span.get("kind") == _GATE and "filter" in decision and "outcome" in decision:
            found[f"{decision['filter']}/{decision['outcome']}/{span.get('name')}"] += 1
    return dict(sorted(found.items()))


def count_guard_verdicts(spans: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Guard -> its verdicts on tool results, each beside the truth of what was planted, where that is known.

    Counted are results: `found` and `missed` (a planted text stood in them), `false_alarms` and `passed`
    (none did), `unreadable` (no verdict); and the characters of unplanted results, `chars`, of these `cut`.
    """
    found: dict[str, dict[str, int]] = {}
    for span in spans:
        decision = span.get("decision") or {}
        if not isinstance(decision.get("planted"), bool):
            continue
        guard = found.setdefault(
            str(decision.get("filter") or decision.get("detector")), dict.fromkeys(GUARD_COUNTS, 0)
        )
        planted, flagged = decision["planted"], decision.get("flagged")
        if not isinstance(flagged, bool):
            guard["unreadable"] += 1
        else:
            guard[_VERDICTS[planted, flagged]] += 1
        if not planted:
            before, after = _int_or_zero(decision.get("chars_in")), _int_or_zero(decision.get("chars_out"))
            guard["chars"] += before
            guard["cut"] += max(before - after, 0)
    return found


_VERDICTS = {
    (True, True): "found",
    (True, False): "missed",
    (False, True): "false_alarms",
    (False, False): "passed",
}
GUARD_COUNTS = (*_VERDICTS.values(), "unreadable", "chars", "cut")
"""What is counted of a guard."""


def count_odd_replies(spans: Sequence[Any]) -> dict[str, dict[str, int]]:
    """Model id that replies named -> kind of oddity -> replies."""
    found: dict[str, dict[str, int]] = {}
    for span in spans:
        for call in span.get("calls") or ():
            odd = call.get("odd")
            for kind, count in odd.items() if isinstance(odd, dict) else ():
                of_model = found.setdefault(str(call.get("model_id")), {})
                of_model[str(kind)] = of_model.get(str(kind), 0) + _int_or_zero(count)
    return found


def find_answered_roles(spans: Sequence[Any]) -> dict[str, str]:
    """Model id that replies named -> the role that was answered first."""
    found: dict[str, str] = {}
    for span in spans:
        for call in span.get("calls") or ():
            if isinstance(model_id := call.get("model_id"), str) and model_id:
                found.setdefault(model_id, str(call.get("role")))
    return found


def _count_decision(decision: Mapping[str, Any], counts: Counter[str]) -> None:
    """Adds what one span decided, whatever its kind: `allow` is a verdict, `spans_cut` a number."""
    allow = decision.get("allow")
    if isinstance(allow, bool):
        counts["allowed"] += allow
        counts["denied"] += not allow
    if "spans_cut" in decision:
        counts["sanitized_spans"] += _int_or_zero(decision["spans_cut"])


def _int_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0
