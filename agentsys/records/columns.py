"""Packs `CaseRow`s into columns: of an index, and of a data frame.

A column's type follows from its annotation on `CaseRow`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from agentsys.records.case_row import CaseRow

if TYPE_CHECKING:
    import pandas as pd

_ANNOTATIONS = {column.name: str(column.type) for column in fields(CaseRow)}
_STORED = [name for name in _ANNOTATIONS if name != "source"]
"""The path is not stored: it changes when a folder is moved."""
_NUMBERS: dict[str, type] = {"int": int, "bool": bool, "float": float}
"""Annotation, None aside -> type of the values; others are of texts, mappings and tuples."""
_STORED_AS: dict[str, type] = {**_NUMBERS, "Mapping": dict, "tuple": list}
"""The same of values as JSON has them; of others `str`."""

Columns = Mapping[str, tuple[Sequence[Any], Sequence[int] | None]]
"""Column -> its different values as JSON has them and, for each row, the place of its own; None: all have one."""


def pack_rows(rows: Sequence[CaseRow]) -> tuple[Columns, frozenset[int]]:
    """Rows as columns, less their paths; and the places of rows that are left out.

    These are such as JSON would not give back (nan, huge numbers).
    """
    packed: dict[str, tuple[Sequence[Any], Sequence[int] | None]] = {}
    bad: set[int] = set()
    for name in _STORED:
        values = [*map(attrgetter(name), rows)]
        is_mapping = _ANNOTATIONS[name].startswith("Mapping")
        keys = [*map(_dump_value, values)] if is_mapping else values  # what tells equal values from others
        stored = {key: orjson.loads(key if is_mapping else _dump_value(key)) for key in dict.fromkeys(keys)}
        again = dict(zip(stored, _parse_values(_ANNOTATIONS[name], stored.values()), strict=True))
        if is_mapping or any(value != key for key, value in again.items()):
            bad.update(at for at, key in enumerate(keys) if again[key] != values[at])
        places = {key: at for at, key in enumerate(stored)}
        packed[name] = [*stored.values()], [*map(places.__getitem__, keys)] if len(places) > 1 else None
    if bad:
        packed = dict(pack_rows([row for at, row in enumerate(rows) if at not in bad])[0])
    return packed, frozenset(bad)


def _dump_value(value: object) -> bytes:
    try:
        return b"{}" if value == {} else orjson.dumps(value)  # most mappings are empty
    except TypeError:  # a number beyond 64 bits
        return b"null"


def unpack_rows(packed: Columns, sources: Sequence[str], numbers: Sequence[int]) -> list[CaseRow]:
    """Some of the rows that were packed; they share texts and mappings that are equal.

    Args:
        packed: Anyone may have written it: it is data, and no type is trusted.
        sources: The path of each row that is wanted.
        numbers: The number of each.

    Raises:
        ValueError: If these are not the columns of rows.
    """
    rows = [CaseRow.__new__(CaseRow) for _ in numbers]
    if not rows:
        return rows
    choose = itemgetter(*numbers, 0)  # one alone would give no tuple; what is too much is passed over
    deque(map(_get_setter("source"), rows, sources), maxlen=0)
    try:
        for name in _STORED:
            values, places = packed[name]
            parsed = _parse_values(_ANNOTATIONS[name], values)
            if _NOT_ALLOWED in parsed:
                raise ValueError(f"{name}: no such value")
            own = repeat(parsed[0]) if places is None else map(parsed.__getitem__, choose(places))
            # Into its slot, a column at a time: a quarter of what 50,000 calls of `CaseRow` take.
            deque(map(_get_setter(name), rows, own), maxlen=0)
    except (TypeError, LookupError):
        raise ValueError("not the columns of rows") from None
    return rows


_NOT_ALLOWED = object()


def _parse_values(annotation: str, stored: Iterable[Any]) -> list[Any]:
    """Values as rows have them; `_NOT_ALLOWED` where a column of this annotation cannot hold one."""
    kind, _, optional = annotation.partition("[")[0].partition(" | ")
    allowed = {_STORED_AS.get(kind, str), *([type(None)] if optional else [])}
    values = [value if type(value) in allowed else _NOT_ALLOWED for value in stored]
    return [tuple(value) if type(value) is list else value for value in values] if kind == "tuple" else values


def _get_setter(name: str) -> Callable[[CaseRow, Any], None]:
    setter: Callable[[CaseRow, Any], None] = getattr(CaseRow, name).__set__
    return setter


def build_frame(rows: Sequence[CaseRow]) -> pd.DataFrame:
    """A data frame of some rows with the columns of `CaseRow`, missing values kept apart from zeros.

    A mapping is each line's own, to change at will.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            name: _make_series([*map(attrgetter(name), rows)], name, kind)
            for name, kind in _ANNOTATIONS.items()
        }
    )


def _make_series(values: list[Any], name: str, kind: str) -> pd.Series[Any]:
    import pandas as pd

    if kind.startswith("Mapping"):
        values = [orjson.loads(orjson.dumps(value)) if value else {} for value in values]
    if kind.startswith(("Mapping", "tuple")):
        return pd.Series(values, dtype=object)
    plain = kind.removesuffix(" | None")
    if plain not in _NUMBERS:
        return pd.Series(values)  # as texts; as objects where all are missing
    types = {"int": "Int64", "bool": "boolean"} if kind.endswith("None") else {}
    if plain == "int" and max(map(_count_bits, values), default=0) > 63:
        # Sums of numbers in files that anyone may have written: a number beyond 64 bits is a missing one.
        values = [None if _count_bits(value) > 63 else value for value in values]
    found: pd.Series[Any] = pd.Series(values, dtype=types.get(plain, plain))
    return found


def _count_bits(value: int | None) -> int:
    return 0 if value is None else value.bit_length()
