"""`Columns`: rows of cases kept as columns, of an index and while many files are read; and data frames of rows.

Each column has its different values once. A column's type follows from its annotation on `CaseRow`.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import orjson

from agentsys.records.case_row import CaseRow

if TYPE_CHECKING:
    import pandas as pd

ANNOTATIONS = {column.name: str(column.type) for column in fields(CaseRow)}
_DEFAULTS: dict[str, Any] = {
    column.name: None if column.default is MISSING else column.default for column in fields(CaseRow)
}
MAPPINGS = frozenset(name for name, kind in ANNOTATIONS.items() if kind.startswith("Mapping"))
_DEFAULTS |= {name: {} for name in MAPPINGS}
_STORED = [name for name in ANNOTATIONS if name != "source"]
"""The path is not stored: it changes when a folder is moved."""
_NUMBERS: dict[str, type] = {"int": int, "bool": bool, "float": float}
"""Annotation, None aside -> type of the values; others are of texts, mappings and tuples."""


class Columns:
    """Rows, less their paths; a value that several rows have is kept once, and so is a mapping."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self.count = 0
        """Number of rows."""
        self._values: dict[str, list[Any]] = {name: [] for name in _STORED}
        self._codes = {name: array("I") for name in _STORED}
        """Column -> for each row the place of its value."""
        self._places: dict[str, dict[Any, int]] = {name: {} for name in _STORED}
        """Column -> what tells a value from others -> its place."""
        self._odd: dict[str, set[int]] = {}
        """Column -> places of values that JSON would not give back (nan, huge numbers)."""

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows, given as the arguments of `CaseRow`; what they leave out has its default."""
        self.count += len(rows)
        present = set().union(*rows)
        for name in _STORED:
            default, places = _DEFAULTS[name], self._places[name]
            if name not in present:
                key = _make_key(default) if name in MAPPINGS else default
                self._codes[name].extend(repeat(self._keep(name, key, default), len(rows)))
                continue
            values = [row.get(name, default) for row in rows]
            keys = [*map(_make_key, values)] if name in MAPPINGS else values
            try:
                codes = [*map(places.__getitem__, keys)]
            except KeyError:
                codes = [*map(self._keep, repeat(name), keys, values)]
            self._codes[name].extend(codes)

    def _keep(self, name: str, key: Any, value: Any) -> int:
        place = self._places[name].setdefault(key, len(self._values[name]))
        if place == len(self._values[name]):
            self._values[name].append(value)
            if not _is_given_back(value):
                self._odd.setdefault(name, set()).add(place)
        return place

    def unpack(self, sources: Sequence[str], numbers: Sequence[int]) -> list[CaseRow]:
        """Build some of the rows, given the path and the number of each."""
        rows = [CaseRow.__new__(CaseRow) for _ in numbers]
        if not rows:
            return rows
        choose = itemgetter(*numbers, 0)  # one alone would give no tuple; what is too much is passed over
        deque(map(_get_setter("source"), rows, sources), maxlen=0)
        for name, values in self._values.items():
            own = (
                repeat(values[0]) if len(values) == 1 else map(values.__getitem__, choose(self._codes[name]))
            )
            # Into its slot, a column at a time: a quarter of what 50,000 calls of `CaseRow` take.
            deque(map(_get_setter(name), rows, own), maxlen=0)
        return rows

    def find_storable(self, numbers: Iterable[int]) -> list[int]:
        """Those of some rows that `dump` can store."""
        odd = {
            at
            for name, places in self._odd.items()
            for at, place in enumerate(self._codes[name])
            if place in places
        }
        return [number for number in numbers if number not in odd]

    def dump(self, numbers: Sequence[int]) -> tuple[bytes, dict[str, Any]]:
        """Some rows in this order: the values as JSON, and the codes as arrays, by column.

        A column of one value has no array.
        """
        import numpy as np

        values, arrays = dict[str, list[Any]](), {}
        for name in _STORED:
            codes = np.frombuffer(self._codes[name], dtype=np.uint32)[np.asarray(numbers, dtype=np.int64)]
            used, own = np.unique(codes, return_inverse=True)
            values[name] = [self._values[name][place] for place in used.tolist()]
            if len(used) > 1:
                arrays[name] = own.astype(np.min_scalar_type(len(used)))
        return orjson.dumps(values), arrays

    @classmethod
    def parse(cls, text: bytes, arrays: Mapping[str, Any], count: int) -> Columns:
        """Columns of `count` rows, as `dump` gave them."""
        columns, stored = cls(), orjson.loads(text)
        for name in _STORED:
            is_tuple = ANNOTATIONS[name].startswith("tuple")
            values = [*map(tuple, stored[name])] if is_tuple else stored[name]
            codes = arrays.get(name)
            columns._values[name] = values
            columns._codes[name] = (
                array("I", bytes(4 * count)) if codes is None else array("I", codes.astype("I").tobytes())
            )
            keys = map(_make_key, values) if name in MAPPINGS else values
            columns._places[name] = {key: at for at, key in enumerate(keys)}
        columns.count = count
        return columns


def _make_key(value: object) -> bytes:
    """What tells a mapping from others."""
    if not value:
        return b""
    try:
        key = orjson.dumps(value)
    except TypeError:  # a number beyond 64 bits
        return repr(value).encode("utf-8", "backslashreplace")
    return repr(value).encode() if b"null" in key else key  # None and nan are both null


def _is_given_back(value: object) -> bool:
    """True if JSON gives a value back."""
    try:
        stored = orjson.loads(orjson.dumps(value))
    except TypeError:
        return False
    return bool((tuple(stored) if isinstance(value, tuple) else stored) == value)


def _get_setter(name: str) -> Callable[[CaseRow, Any], None]:
    setter: Callable[[CaseRow, Any], None] = getattr(CaseRow, name).__set__
    return setter


def build_frame(rows: Sequence[CaseRow]) -> pd.DataFrame:
    """A data frame of some rows with the columns of `CaseRow`, missing values kept apart from zeros.

    A mapping is each line's own, to change at will.
    """
    import pandas as pd

    return pd.DataFrame(
        {name: _make_series([*map(attrgetter(name), rows)], name, kind) for name, kind in ANNOTATIONS.items()}
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
