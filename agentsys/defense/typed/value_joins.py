"""Joins: what code computes of values that the main agent does not read.

`sum($c1.a, $c2.b)` adds numbers, `count($c1.files)` counts a list, `largest($c1.files, size).id` picks a
record by a field. What comes out is known to be computed: it depends on all values that went in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
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
class Join:
    """One computation, as the main agent wrote it."""

    operator: str
    operands: tuple[str, ...]
    """Handles."""
    key: str | None = None
    """The field that records are compared by."""
    field: str | None = None
    """The field of the picked record that is wanted; None: all of it."""


@dataclass(frozen=True)
class JoinedValue:
    """What a join gave."""

    operator: str
    value: Any
    origins: tuple[ValueOrigin, ...]
    """ValueOrigin of everything that had a part in it."""


def parse_join(text: str) -> Join | None:
    """The join that a whole text is; None for any other text."""
    form = _JOIN.fullmatch(text)
    if form is None:
        return None
    parts = [part.strip().strip("'\"`") for part in form["inside"].split(",")]
    if form["operator"] in ("largest", "smallest"):
        if len(parts) > 2 or not parts[0].startswith("$c"):
            return None
        key = parts[1].removeprefix(".") if len(parts) == 2 else None
        return Join(form["operator"], (parts[0],), key, form["field"])
    if form["field"] or not all(part.startswith("$c") for part in parts):
        return None
    return Join(form["operator"], tuple(parts))


def compute_join(join: Join, find: FindValue) -> JoinedValue | None:
    """Compute a join; None where a handle names nothing, or the values are not of the kind."""
    located = [find(operand) for operand in join.operands]
    if any(one is None for one in located):
        return None
    values = [one[0] for one in located if one is not None]
    origins = tuple(origin for one in located if one is not None for origin in one[1].values())
    if join.operator == "sum":
        return _add_numbers(values, origins)
    if join.operator == "count":
        lists = [value for value in values if isinstance(value, list)]
        return JoinedValue("count", sum(map(len, lists)), origins) if len(lists) == len(values) else None
    return _pick_record(join, values[0], origins)


def _add_numbers(values: Iterable[Any], origins: tuple[ValueOrigin, ...]) -> JoinedValue | None:
    leaves = [leaf for value in values for _, leaf in iterate_leaves(value)]
    if not leaves or any(find_value_kind(leaf) is not ValueKind.NUMBER for leaf in leaves):
        return None
    total = sum(Decimal(write_canonical(leaf)) for leaf in leaves)
    return JoinedValue("sum", int(total) if total == int(total) else float(total), origins)


def _pick_record(join: Join, records: Any, origins: tuple[ValueOrigin, ...]) -> JoinedValue | None:
    if not isinstance(records, list) or not records:
        return None
    keys = [record.get(join.key) if isinstance(record, dict) else record for record in records]
    kinds = {find_value_kind(key) for key in keys}
    if len(kinds) != 1 or not kinds <= {ValueKind.NUMBER, ValueKind.DATE}:
        return None
    number = kinds == {ValueKind.NUMBER}
    ranks = [Decimal(write_canonical(key)) if number else write_canonical(key) for key in keys]
    pick = max if join.operator == "largest" else min
    record = records[ranks.index(pick(ranks))]
    if join.field is None:
        return JoinedValue(join.operator, record, origins)
    if not isinstance(record, dict) or join.field not in record:
        return None
    return JoinedValue(join.operator, record[join.field], origins)
