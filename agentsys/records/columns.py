"""Rows <-> Arrow table; table -> data frame. A column's type follows from its annotation on `CaseRow`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import repeat
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa

from agentsys.records.case_row import CaseRow

if TYPE_CHECKING:
    import pandas as pd

_ANNOTATIONS = {column.name: str(column.type) for column in fields(CaseRow)}
_JSON = {name for name, kind in _ANNOTATIONS.items() if kind.startswith(("Mapping", "tuple"))}
"""Columns that hold mappings and tuples; tables keep them as JSON text."""

_NUMBERS = {
    kind: np.dtype(str(kind).replace("double", "float64"))
    for kind in (pa.int8(), pa.int32(), pa.int64(), pa.float64())
}
"""Type of a column of numbers -> what numpy calls it."""

_TYPES = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64()}
"""Annotation on `CaseRow`, None aside -> type of the column; any other is text."""

_TEXT = pa.dictionary(pa.int32(), pa.string())
"""Each different text is held once: many rows have the same."""

ROW_FIELDS = [
    pa.field(name, _TYPES.get(kind.removesuffix(" | None"), _TEXT))
    for name, kind in _ANNOTATIONS.items()
    if name != "source"
]
"""One field per column of `CaseRow`, in order, but for `source`: the path changes when a folder is moved."""


_AT_ONCE = 500
"""Rows whose slots are filled together: so many stay in the processor's cache, in which 50,000 do not."""

_NO_CASE = SimpleNamespace(**dict.fromkeys(_ANNOTATIONS))


def row_arrays(rows: Sequence[CaseRow | None]) -> list[pa.Array]:
    """The rows as columns, in the order of `ROW_FIELDS`.

    Args:
        rows: The rows, in order; None gives a line of nulls.
    """
    whole = [_NO_CASE if row is None else row for row in rows]
    return [_array([*map(attrgetter(field.name), whole)], field) for field in ROW_FIELDS]


def rows_of(table: pa.Table, sources: Sequence[str], lines: Sequence[int] | None = None) -> list[CaseRow]:
    """The rows of a table, which share texts and mappings that are equal.

    Args:
        table: The rows with at least the fields of `ROW_FIELDS`.
        sources: The path of each row.
        lines: The lines of the table that the rows are made of, none of them a line of nulls; None: all.
    """
    at = None if lines is None or lines == [*range(len(table))] else np.asarray(lines, np.int64)
    columns = [
        (
            getattr(CaseRow, name).__set__,
            iter(sources if name == "source" else _values(table.column(name), name, at)),
        )
        for name in _ANNOTATIONS
    ]
    rows: list[CaseRow] = []
    for start in range(0, len(sources), _AT_ONCE):
        some = [CaseRow.__new__(CaseRow) for _ in sources[start : start + _AT_ONCE]]
        for put, values in columns:
            # Into its slot, a column at a time: a quarter of what 50,000 calls of `CaseRow` take.
            deque(map(put, some, values), maxlen=0)
        rows += some
    return rows


_Lines = npt.NDArray[np.int64] | None
"""Lines of a table; None: all of them, in order."""


def _values(column: pa.ChunkedArray, name: str, lines: _Lines) -> Iterable[Any]:
    """A column as Python's values, each different text made, or parsed, once; one of nulls has no end."""
    if column.null_count == len(column):
        return repeat(_parsed([None], _ANNOTATIONS[name])[0] if name in _JSON else None)
    if not pa.types.is_dictionary(column.type):
        return plain_list(column, lines=lines)
    coded = column.combine_chunks()
    texts: list[Any] = [*coded.dictionary.to_pylist(), None]
    return _decoded(coded, _parsed(texts, _ANNOTATIONS[name]) if name in _JSON else texts, lines)


def _decoded(coded: pa.DictionaryArray, values: Sequence[Any], lines: _Lines) -> Iterator[Any]:
    """The values in their order, of which the last one stands for null."""
    return map(values.__getitem__, plain_list(coded.indices, -1, lines))


def plain_list(
    column: pa.ChunkedArray | pa.Array, null: object = None, lines: npt.NDArray[np.int64] | None = None
) -> list[Any]:
    """Numbers, truth values or dictionaries' texts as Python's, and `null` for each null.

    `to_pylist` takes ten times as long, and `to_numpy` imports pandas if it is installed: half a second.
    Arrow's own functions are not called either: to import them takes as long as to read 50,000 rows.

    Args:
        column: The values.
        null: What stands for a missing one.
        lines: Places of those that are wanted, in the order wanted; None: all.
    """
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if not len(array):
        return []
    if pa.types.is_dictionary(array.type):
        return [*_decoded(array, [*array.dictionary.to_pylist(), null], lines)]
    known, held = array.buffers()
    kept = slice(array.offset, array.offset + len(array))
    numbers = _bits(held) if pa.types.is_boolean(array.type) else np.frombuffer(held, _NUMBERS[array.type])
    chosen = slice(None) if lines is None else lines
    values: list[Any] = numbers[kept][chosen].tolist()
    if array.null_count:
        for at in np.flatnonzero(~_bits(known)[kept][chosen]).tolist():
            values[at] = null
    return values


def _bits(packed: pa.Buffer) -> npt.NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little").view(np.bool_)


def frame_of(table: pa.Table) -> pd.DataFrame:
    """A data frame with the columns of `CaseRow` (no others), missing values kept apart from zeros.

    Args:
        table: The rows with at least the fields of `ROW_FIELDS` and `source`, and no line of nulls.
    """
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    columns: dict[str, Any] = {}
    for name, kind in _ANNOTATIONS.items():
        column = table.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(pa.string())
        if name in _JSON:
            columns[name] = pd.Series(_parsed(column.to_pylist(), kind), dtype=object)
        else:
            types = nullable.get if kind.endswith("None") else None
            columns[name] = column.to_pandas(types_mapper=types)
    return pd.DataFrame(columns)


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    if field.name in _JSON:  # Most are empty: null is small on disk and fast to read.
        values = [orjson.dumps(value).decode() if value else None for value in values]
    try:
        return pa.array(values, field.type)
    except (pa.ArrowInvalid, OverflowError):
        # A number beyond 64 bits (sums of numbers in files that anyone may have written).
        return pa.array([None if _is_beyond(value) else value for value in values], field.type)


def _is_beyond(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > 63


def _parsed(texts: list[str | None], kind: str) -> list[Any]:
    """Mappings and tuples from JSON; null is an empty one. Each line gets its own, to change at will."""
    if kind.startswith("tuple"):
        return [() if text is None else tuple(orjson.loads(text)) for text in texts]
    return [{} if text is None else orjson.loads(text) for text in texts]
