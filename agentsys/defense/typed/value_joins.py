"""Joins: what code computes of values that the main agent does not read.

`sum($c1.a, $c2.b)` adds numbers, `count($c1.files)` counts a list, `largest($c1.files, size).id` picks a
record by a field. What comes out is known to be computed: it depends on all values that went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from agentsys.defense.typed.value_origin import (
    ValueKind,
    ValueOrigin,
    find_value_kind,
    iterate_leaves,
    write_canonical,
)

Origins = Mapping[tuple[str | int, ...], ValueOrigin]
FindValue = Callable[[str], tuple[Any, Origins] | None]
"""The value behind a handle; None if there is none."""

_JOIN = re.compile(
    r"\s*=?\s*(?P<operator>sum|count|largest|smallest)\((?P<inside>[^()]{1,2000})\)(?:\.(?P<field>\w{1,60}))?\s*",
    re.ASCII,
)


@dataclass(frozen=True)
class JoinedValue:
    """What a join gave."""

    operator: str
    value: Any
    origins: tuple[ValueOrigin, ...]
    """ValueOrigin of everything that had a part in it."""


def compute_join(text: str, find: FindValue) -> JoinedValue | None:
    """What a text gives that is a join; None for any other text, and where values are missing or not of the kind."""
    form = _JOIN.fullmatch(text)
    if form is None:
        return None
    operator, parts = form["operator"], [part.strip().strip("'\"`") for part in form["inside"].split(",")]
    picks = operator in ("largest", "smallest")
    if (picks and len(parts) > 2) or (form["field"] and not picks):
        return None
    located = [one for part in (parts[:1] if picks else parts) if (one := find(part)) is not None]
    if len(located) != (1 if picks else len(parts)):
        return None
    values = [value for value, _ in located]
    try:
        if picks:
            key = parts[1].removeprefix(".") if len(parts) == 2 else None
            value = _pick_record(values[0], operator, key, form["field"])
        else:
            value = _add_numbers(values) if operator == "sum" else _count_items(values)
    except _UnfitValues:
        return None
    return JoinedValue(operator, value, tuple(origin for _, inside in located for origin in inside.values()))


class _UnfitValues(Exception):
    """The values are not of the kind that a join takes."""


def _count_items(values: Sequence[Any]) -> int:
    if not all(isinstance(value, list) for value in values):
        raise _UnfitValues
    return sum(map(len, values))


def _add_numbers(values: Sequence[Any]) -> int | float:
    leaves = [leaf for value in values for _, leaf in iterate_leaves(value)]
    if not leaves or any(find_value_kind(leaf) is not ValueKind.NUMBER for leaf in leaves):
        raise _UnfitValues
    total = sum(Decimal(write_canonical(leaf)) for leaf in leaves)
    return int(total) if total == int(total) else float(total)


def _pick_record(records: Any, operator: str, key: str | None, wanted: str | None) -> Any:
    if not isinstance(records, list) or not records:
        raise _UnfitValues
    keys = [record.get(key) if isinstance(record, dict) else record for record in records]
    kinds = {find_value_kind(key) for key in keys}
    if kinds not in ({ValueKind.NUMBER}, {ValueKind.DATE}):
        raise _UnfitValues
    texts = map(write_canonical, keys)
    ranks: list[Any] = list(map(Decimal, texts) if kinds == {ValueKind.NUMBER} else texts)
    record = records[ranks.index(max(ranks) if operator == "largest" else min(ranks))]
    if wanted is None:
        return record
    if not isinstance(record, dict) or wanted not in record:
        raise _UnfitValues
    return record[wanted]
