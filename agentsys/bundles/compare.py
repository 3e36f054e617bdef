"""`differences`: two records of one case, beside each other, less what no two runs have in common."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentsys.records.schema import OWN_KEY

_AROUND = {"duration", "evaluation_timestamp", "agentdojo_package_version", "error"}
"""AgentDojo's fields that are times, versions, or texts of errors."""
_OWN = {"schema_version", "config_hash", "versions", "notes", "traceback", "usage"}
"""Our fields that are versions, remarks on how it was run, or sums of what the spans' calls hold."""
_OF_SPAN = {"duration_s"}
_OF_CALL = {"latency_s", "from_cache", "attempts", "cost_usd", "notes", "odd"}
_TOKENS = {"prompt", "completion", "cached", "reasoning", "uncounted", "written"}
"""Counts of a call; those of one that was sent more than once hold what the lost replies took, too."""
_MOST_SHOWN = 3
_LONGEST = 60


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Where two records differ: a field and both values, the first few."""
    one, other = _comparable(first), _comparable(second)
    _level_retried(one, other)
    found = list(_differing(one, other))
    rest = [f"and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return [*found[:_MOST_SHOWN], *rest]


def _comparable(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A record's outcome, its messages and all that was asked: what the same case gives again."""
    found = {key: value for key, value in stored.items() if key not in _AROUND}
    block = stored.get(OWN_KEY)
    if isinstance(block, dict):
        own = {key: value for key, value in block.items() if key not in _OWN}
        own["data"] = (block.get("versions") or {}).get("data")
        own["spans"] = [_span(span) for span in block.get("spans") or []]
        found[OWN_KEY] = own
    return found


def _span(span: Any) -> Any:
    if not isinstance(span, dict):
        return span
    kept = {key: value for key, value in span.items() if key not in _OF_SPAN}
    calls = span.get("calls")
    if isinstance(calls, list):
        kept["calls"] = [_call(call) for call in calls]
    return kept


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    kept = {key: value for key, value in call.items() if key not in _OF_CALL}
    lost = call.get("odd") or (isinstance(call.get("attempts"), int) and call["attempts"] > 1)
    return {key: None if lost and key in _TOKENS else value for key, value in kept.items()}


def _level_retried(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Leave out in both the counts of calls that one of the two had sent more than once."""
    for first, second in zip(_calls(one), _calls(other), strict=False):
        for key in _TOKENS:
            if first.get(key) is None or second.get(key) is None:
                first[key] = second[key] = None


def _calls(comparable: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for span in (comparable.get(OWN_KEY) or {}).get("spans", []):
        if isinstance(span, dict):
            yield from (call for call in span.get("calls") or [] if isinstance(call, dict))


def _differing(one: Any, other: Any, place: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            inner = f"{place}.{key}" if place else str(key)
            yield from _differing(one.get(key), other.get(key), inner)
    elif isinstance(one, list) and isinstance(other, list):
        for at, (first, second) in enumerate(zip(one, other, strict=False)):
            yield from _differing(first, second, f"{place}[{at}]")
        if len(one) != len(other):
            yield f"{place}: {len(one)} entries then, {len(other)} now"
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        then, now = _cut(one, other)
        yield f"{place.removeprefix(f'{OWN_KEY}.')}: {then} then, {now} now"


def _cut(one: Any, other: Any) -> tuple[str, str]:
    """Two values as JSON, from a little before where they part."""
    first, second = json.dumps(one, ensure_ascii=True), json.dumps(other, ensure_ascii=True)
    pairs = enumerate(zip(first, second, strict=False))
    parted = next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))
    begin = max(0, parted - _LONGEST // 3) if max(len(first), len(second)) > _LONGEST else 0
    return _part(first, begin), _part(second, begin)


def _part(text: str, begin: int) -> str:
    cut = text[begin : begin + _LONGEST]
    return f"{'...' if begin else ''}{cut}{'...' if begin + _LONGEST < len(text) else ''}"
