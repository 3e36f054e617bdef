"""`compute_join`: values that are computed out of hidden ones: `sum($c1.a, $c2.b)`, `largest($c1.files, size).id`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from agentsys_plugins.typed.value_origin import (
    ChosenBy,
    Distance,
    ValueKind,
    ValueOrigin,
    ValuePath,
    find_value_kind,
    iterate_leaves,
    write_canonical,
)

FoundValue = tuple[Any, Mapping[ValuePath, ValueOrigin]]
"""A value, and what is known of each of its leaves."""
_JOIN = re.compile(
    r"\s*=?\s*(?P<operator>sum|count|largest|smallest)\((?P<inside>[^()]{1,2000})\)(?:\.(?P<field>\w{1,60}))?\s*",
    re.ASCII,
)


def compute_join(text: str, find: Callable[[str], FoundValue | None]) -> tuple[Any, ValueOrigin] | None:
    """Compute a text that is a join; None for any other text, and where values are missing or not of the kind.

    Returns:
        The value, and what is known of it: it is trusted as little as the least of what it was computed from.
    """
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
    origins = [origin for _, inside in located for origin in inside.values()]
    choice = max((origin.choice for origin in origins), default=ChosenBy.CODE)
    distance = max((origin.distance for origin in origins), default=Distance.OWN)
    rivals = any(origin.has_rivals for origin in origins)
    return value, ValueOrigin(0, operator, (), find_value_kind(value), choice, distance, rivals)


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
