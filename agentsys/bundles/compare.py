"""`differences`: two records of one case, beside each other, less what no two runs have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentsys.records.schema import OWN_KEY

_IGNORED_FIELDS = {"duration", "evaluation_timestamp", "agentdojo_package_version", "error"}
"""AgentDojo's fields that are times, versions, or texts of errors."""
_IGNORED_OWN_FIELDS = {"schema_version", "config_hash", "versions", "notes", "traceback", "usage"}
"""Our fields that are versions, remarks on how it was run, or sums of what the spans' calls hold."""
_IGNORED_SPAN_FIELDS = {"duration_s"}
_IGNORED_CALL_FIELDS = {"latency_s", "from_cache", "attempts", "cost_usd", "notes", "odd"}
_TOKEN_COUNTS = {"prompt", "completion", "cached", "reasoning", "uncounted", "written"}
"""Counts of a call; those of one that was sent more than once hold what the lost replies took, too."""
_MAX_DIFFERENCES = 3
_MAX_VALUE_CHARS = 60


def compare_records(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Where two records differ: a field and both values, the first few."""
    one, other = _make_comparable(first), _make_comparable(second)
    _level_retried(one, other)
    found = list(_iterate_differences(one, other))
    rest = [f"and {len(found) - _MAX_DIFFERENCES} more"] if len(found) > _MAX_DIFFERENCES else []
    return [*found[:_MAX_DIFFERENCES], *rest]


def _make_comparable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A record's outcome, its messages and all that was asked: what the same case gives again."""
    found = {key: value for key, value in stored.items() if key not in _IGNORED_FIELDS}
    block = stored.get(OWN_KEY)
    if isinstance(block, dict):
        own = {key: value for key, value in block.items() if key not in _IGNORED_OWN_FIELDS}
        own["data"] = (block.get("versions") or {}).get("data")
        own["spans"] = [_make_comparable_span(span) for span in block.get("spans") or []]
        found[OWN_KEY] = own
    return found


def _make_comparable_span(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    kept = {key: value for key, value in span.items() if key not in _IGNORED_SPAN_FIELDS}
    calls = span.get("calls")
    if isinstance(calls, list):
        kept["calls"] = [_make_comparable_call(call) for call in calls]
    return kept


def _make_comparable_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    kept = {key: value for key, value in call.items() if key not in _IGNORED_CALL_FIELDS}
    lost = call.get("odd") or (isinstance(call.get("attempts"), int) and call["attempts"] > 1)
    return {key: None if lost and key in _TOKEN_COUNTS else value for key, value in kept.items()}


def _level_retried(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Leave out in both the counts of calls that one of the two had sent more than once."""
    for first, second in zip(_iterate_calls(one), _iterate_calls(other), strict=False):
        for key in _TOKEN_COUNTS:
            if first.get(key) is None or second.get(key) is None:
                first[key] = second[key] = None


def _iterate_calls(comparable: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for span in (comparable.get(OWN_KEY) or {}).get("spans", []):
        if isinstance(span, dict):
            yield from (call for call in span.get("calls") or [] if isinstance(call, dict))


def _iterate_differences(one: Any, other: Any, place: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            inner = f"{place}.{key}" if place else str(key)
            yield from _iterate_differences(one.get(key), other.get(key), inner)
    elif isinstance(one, list) and isinstance(other, list):
        for at, (first, second) in enumerate(zip(one, other, strict=False)):
            yield from _iterate_differences(first, second, f"{place}[{at}]")
        if len(one) != len(other):
            yield f"{place}: {len(one)} entries then, {len(other)} now"
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        then, now = _cut_values(one, other)
        yield f"{place.removeprefix(f'{OWN_KEY}.')}: {then} then, {now} now"


def _cut_values(one: Any, other: Any) -> tuple[str, str]:
    """Two values as JSON, from a little before where they part."""
    first, second = json.dumps(one, ensure_ascii=True), json.dumps(other, ensure_ascii=True)
    pairs = enumerate(zip(first, second, strict=False))
    parted = next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
    begin = max(0, parted - _MAX_VALUE_CHARS // 3) if max(len(first), len(second)) > _MAX_VALUE_CHARS else 0
    return _cut_text(first, begin), _cut_text(second, begin)


def _cut_text(text: str, begin: int) -> str:
    cut = text[begin : begin + _MAX_VALUE_CHARS]
    return f"{'...' if begin else ''}{cut}{'...' if begin + _MAX_VALUE_CHARS < len(text) else ''}"
