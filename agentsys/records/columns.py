"""Packs `CaseRow`s into short texts for an index, and into the columns of a data frame.

A column's type follows from its annotation on `CaseRow`.
"""

from __future__ import annotations

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
_stored = attrgetter(*_STORED)

_NUMBERS: dict[str, type] = {"int": int, "bool": bool, "float": float}
"""Annotation, None aside -> type of the values; others are of texts, mappings and tuples."""


def pack_rows(rows: Iterable[CaseRow]) -> list[bytes | None]:
    """Rows as JSON, less their paths; None for one that JSON could not give back (nan, huge numbers)."""
    return [*map(_pack_row, rows)]


def _pack_row(row: CaseRow) -> bytes | None:
    values = zip(_STORED, _stored(row), strict=True)
    try:
        # Most mappings are empty: null is short.
        text = orjson.dumps(
            [
                (orjson.dumps(value).decode() if value else None) if name in _JSON else value
                for name, value in values
            ]
        )
        return text if unpack_rows([text], [row.source]) == [row] else None
    except (TypeError, ValueError):  # a number beyond 64 bits
        return None


def unpack_rows(texts: Iterable[bytes], sources: Iterable[str]) -> list[CaseRow]:
    """The rows of some texts that `pack_rows` made; they share texts and mappings that are equal.

    Args:
        texts: One for each row. Anyone may have written them: they are data, and no type is trusted.
        sources: The path of each row.

    Raises:
        ValueError: If one of the texts is not a row's.
    """
    readers = [_make_reader(name, _ANNOTATIONS[name]) for name in _STORED]
    rows: list[CaseRow] = []
    for text, source in zip(texts, sources, strict=True):
        values = orjson.loads(text)
        if not isinstance(values, list) or len(values) != len(readers):
            raise ValueError("not a row's text")
        try:
            read = [reader(value) for reader, value in zip(readers, values, strict=True)]
        except TypeError:  # a list or a mapping where a text should be
            raise ValueError("not a row's text") from None
        rows.append(CaseRow(source=source, **dict(zip(_STORED, read, strict=True))))
    return rows


def _make_reader(name: str, kind: str) -> Callable[[Any], Any]:
    """Make what gives a row's value for a stored one, or raises ValueError."""
    plain = kind.removesuffix(" | None")
    if plain not in _NUMBERS:
        return _TextColumn(name, kind).__getitem__
    types = (_NUMBERS[plain], *([type(None)] if kind.endswith("None") else []))

    def check(value: Any) -> Any:
        if type(value) not in types:
            raise ValueError("no number")
        return value

    return check


class _TextColumn(dict[Any, Any]):
    """A column's texts as they are stored -> as a row has them, each different one made once."""

    def __init__(self, name: str, kind: str) -> None:
        self._parse = _PARSE.get(kind.partition("[")[0], str)
        if name in _JSON or kind.endswith("None"):
            self[None] = self._parse("null") if name in _JSON else None

    def __missing__(self, stored: object) -> Any:
        if not isinstance(stored, str):
            raise ValueError("no text")
        value = self[stored] = self._parse(stored)
        return value


def _parse_container(text: str, form: type) -> Any:
    value = orjson.loads(text) or form()
    if not isinstance(value, form):
        raise ValueError(f"no {form.__name__}")
    return value


_PARSE: dict[str, Callable[[str], Any]] = {
    "Mapping": lambda text: _parse_container(text, dict),
    "tuple": lambda text: tuple(_parse_container(text, list)),
}


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
