"""Packs `CaseRow`s into short texts for an index, and into the columns of a data frame.

A column's type follows from its annotation on `CaseRow`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from agentsys.records.case_row import CaseRow

if TYPE_CHECKING:
    import pandas as pd

_ANNOTATIONS = {column.name: str(column.type) for column in fields(CaseRow)}
_JSON = {name for name, kind in _ANNOTATIONS.items() if kind.startswith(("Mapping", "tuple"))}
"""Columns of mappings and tuples, which are stored as JSON in JSON, so that equal ones can be shared."""
_STORED = [name for name in _ANNOTATIONS if name != "source"]
"""The path is not stored: it changes when a folder is moved."""
_IS_JSON = [name in _JSON for name in _STORED]
_stored = attrgetter(*_STORED)

_NUMBERS: dict[str, type] = {"int": int, "bool": bool, "float": float}
"""Annotation, None aside -> type of the values; others are of texts, mappings and tuples."""

_EMPTY_ROW = orjson.dumps(
    [
        None if name in _JSON or kind.endswith("None") else _NUMBERS.get(kind, str)()
        for name, kind in _ANNOTATIONS.items()
        if name != "source"
    ]
)
"""Stands for a row that has no text."""

_AT_ONCE = 500
"""Rows whose slots are filled together: so many stay in the processor's cache, in which 50,000 do not."""


def pack_rows(rows: Sequence[CaseRow]) -> list[bytes | None]:
    """Rows as JSON, less their paths; None for one that JSON could not give back (nan, huge numbers)."""
    texts = [*map(_pack_row, rows)]
    again = unpack_rows([text or _EMPTY_ROW for text in texts], [row.source for row in rows])
    return [text if row == same else None for text, row, same in zip(texts, rows, again, strict=True)]


def _pack_row(row: CaseRow) -> bytes | None:
    try:
        # Most mappings are empty: null is short.
        return orjson.dumps(
            [
                (orjson.dumps(value).decode() if value else None) if is_json else value
                for is_json, value in zip(_IS_JSON, _stored(row), strict=True)
            ]
        )
    except TypeError:  # a number beyond 64 bits
        return None


def unpack_rows(texts: Sequence[bytes], sources: Sequence[str]) -> list[CaseRow]:
    """The rows of some texts that `packed` made; they share texts and mappings that are equal.

    Args:
        texts: One for each row. Anyone may have written them: they are data, and no type is trusted.
        sources: The path of each row.

    Raises:
        ValueError: If one of the texts is not a row's.
    """
    columns = [(_setter(name), _reader(name, _ANNOTATIONS[name])) for name in _STORED]
    put_source = _setter("source")
    rows: list[CaseRow] = []
    for start in range(0, len(texts), _AT_ONCE):
        stored = [orjson.loads(text) for text in texts[start : start + _AT_ONCE]]
        if not all(isinstance(values, list) and len(values) == len(_STORED) for values in stored):
            raise ValueError("not a row's text")
        some = [CaseRow.__new__(CaseRow) for _ in stored]
        try:
            for (put, read), values in zip(columns, zip(*stored, strict=True), strict=True):
                # Into its slot, a column at a time: a quarter of what 50,000 calls of `CaseRow` take.
                deque(map(put, some, read(values)), maxlen=0)
        except TypeError:  # a list or a mapping where a text should be
            raise ValueError("not a row's text") from None
        deque(map(put_source, some, sources[start:]), maxlen=0)
        rows += some
    return rows


def _setter(name: str) -> Callable[[CaseRow, Any], None]:
    """What puts a value into a row's slot."""
    setter: Callable[[CaseRow, Any], None] = getattr(CaseRow, name).__set__
    return setter


def _reader(name: str, kind: str) -> Callable[[Sequence[Any]], Iterable[Any]]:
    """What makes a row's values out of a column's stored ones, or raises ValueError."""
    return _numbers(kind) if kind.removesuffix(" | None") in _NUMBERS else _TextColumn(name, kind)


class _TextColumn(dict[Any, Any]):
    """A column's texts as they are stored -> as a row has them, each different one made once."""

    def __init__(self, name: str, kind: str) -> None:
        self._parse = _PARSE.get(kind.partition("[")[0], str)
        if name in _JSON or kind.endswith("None"):
            self[None] = self._parse("null") if name in _JSON else None

    def __call__(self, values: Sequence[Any]) -> Iterable[Any]:
        return map(self.__getitem__, values)

    def __missing__(self, stored: object) -> Any:
        if not isinstance(stored, str):
            raise ValueError("no text")
        value = self[stored] = self._parse(stored)
        return value


def _mapping(text: str) -> dict[str, Any]:
    value = orjson.loads(text) or {}
    if not isinstance(value, dict):
        raise ValueError("no mapping")
    return value


def _tuple(text: str) -> tuple[Any, ...]:
    value = orjson.loads(text) or []
    if not isinstance(value, list):
        raise ValueError("no list")
    return tuple(value)


_PARSE = {"Mapping": _mapping, "tuple": _tuple}


def _numbers(kind: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    types = {_NUMBERS[kind.removesuffix(" | None")], *([type(None)] if kind.endswith("None") else [])}

    def checked(values: Sequence[Any]) -> Sequence[Any]:
        if not types.issuperset(map(type, values)):
            raise ValueError("no number")
        return values

    return checked


def build_frame(rows: Sequence[CaseRow]) -> pd.DataFrame:
    """A data frame of some rows with the columns of `CaseRow`, missing values kept apart from zeros.

    A mapping is each line's own, to change at will.
    """
    import pandas as pd

    return pd.DataFrame(
        {name: _series([*map(attrgetter(name), rows)], name, kind) for name, kind in _ANNOTATIONS.items()}
    )


def _series(values: list[Any], name: str, kind: str) -> pd.Series[Any]:
    import pandas as pd

    if kind.startswith("Mapping"):
        values = [orjson.loads(orjson.dumps(value)) if value else {} for value in values]
    if name in _JSON:
        return pd.Series(values, dtype=object)
    plain = kind.removesuffix(" | None")
    if plain not in _NUMBERS:
        return pd.Series(values)  # as texts; as objects where all are missing
    types = {"int": "Int64", "bool": "boolean"} if kind.endswith("None") else {}
    if plain == "int" and max(map(_bits, values), default=0) > 63:
        # Sums of numbers in files that anyone may have written: a number beyond 64 bits is a missing one.
        values = [None if _bits(value) > 63 else value for value in values]
    found: pd.Series[Any] = pd.Series(values, dtype=types.get(plain, plain))
    return found


def _bits(value: int | None) -> int:
    return 0 if value is None else value.bit_length()
