"""Stored cases as Parquet, for DuckDB, Polars and Spark: a row a case, and a row a tool call (extra `parquet`).

Columns are those of `load_runs`; mappings are JSON as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from agentsys.errors import ConfigError, find_missing_packages, make_not_installed_error
from agentsys.records.case import UnreadableRecord
from agentsys.records.columns import ANNOTATIONS, MAPPINGS
from agentsys.records.stored_file import identify_case

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CASES_FILE, CALLS_FILE = "cases.parquet", "calls.parquet"
_ATTRS = b"agentsys"
"""Key of the frame's `attrs` in the file's metadata."""
_CASES_AT_ONCE = 10_000
_CALLS = {"source": "string", "place": "int64", "function": "string", "args": "string", "error": "string"}
"""Columns of calls: the case's `source`, which of its calls it is (from 0), its arguments as JSON, and what went
wrong with it (missing: nothing did)."""


def check_pyarrow(who: str) -> None:
    """Check that pyarrow is there.

    Raises:
        Unavailable: If it is not; the message names the extra.
    """
    if find_missing_packages(["pyarrow"]):
        raise make_not_installed_error(who, ["pyarrow"], "parquet")


def write_parquet(frame: pd.DataFrame, folder: Path) -> int:
    """Write a frame of `load_runs`, and the calls of its cases; files of an earlier export are replaced.

    Returns:
        Number of calls.

    Raises:
        OSError: If the folder cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: [orjson.dumps(one).decode() if one else "{}" for one in frame[name]] for name in MAPPINGS}
    table = pa.Table.from_pandas(frame.assign(**texts), _make_schema(frame), preserve_index=False)
    about = {**(table.schema.metadata or {}), _ATTRS: orjson.dumps(frame.attrs)}
    pq.write_table(table.replace_schema_metadata(about), folder / CASES_FILE, compression="zstd")
    schema, written = pa.schema([*_CALLS.items()]), 0
    with pq.ParquetWriter(folder / CALLS_FILE, schema, compression="zstd") as calls_file:
        sources = frame["source"].tolist()
        for start in range(0, len(sources), _CASES_AT_ONCE):
            some = sources[start : start + _CASES_AT_ONCE]
            calls = [dict(zip(_CALLS, call, strict=True)) for source in some for call in _list_calls(source)]
            calls_file.write_table(pa.Table.from_pylist(calls, schema))
            written += len(calls)
    return written


def _make_schema(frame: pd.DataFrame) -> pa.Schema:
    """The same types whatever is missing in all of these cases."""
    import pyarrow as pa

    types = {"int": pa.int64(), "bool": pa.bool_(), "float": pa.float64(), "tuple": pa.list_(pa.string())}
    kinds = {name: kind.partition("[")[0].partition(" | ")[0] for name, kind in ANNOTATIONS.items()}
    return pa.schema([(name, types.get(kinds.get(name, ""), pa.string())) for name in frame.columns])


def _list_calls(source: str) -> Iterator[tuple[str, int, str, str, str | None]]:
    """The calls that `CaseRow.calls` counts, in order; none of a case that has no file of its own."""
    try:
        found = identify_case(source)
    except UnreadableRecord:
        return
    content = found.content if found is not None else {}
    if found is not None and found.producer == "agentsys":
        spans = (span for span in content["agentsys"]["spans"] if span.get("kind") == "tool")
        made = [(span.get("name"), span.get("decision") or {}) for span in spans]
    else:
        messages = content.get("messages") or content.get("conversations") or ()
        results = [one for one in messages if isinstance(one, dict) and one.get("role") == "tool"]
        calls = [(one.get("tool_call"), one.get("error")) for one in results]
        made = [
            (call.get("function"), {"args": call.get("args"), "error": error})
            for call, error in ((call if isinstance(call, dict) else {}, error) for call, error in calls)
        ]
    for place, (name, facts) in enumerate(made):
        args = orjson.dumps(facts.get("args") or {}).decode()
        error = facts.get("error")
        yield source, place, name if isinstance(name, str) else "unknown", args, str(error) if error else None


def find_parquet(path: Path) -> Path | None:
    """The file of cases that a path names: itself, or the one in the folder of an export; None if there is none."""
    file = path / CASES_FILE if path.is_dir() else path
    return file if file.suffix == ".parquet" and file.is_file() else None


def read_parquet(file: Path) -> pd.DataFrame:
    """Read the frame that was written.

    Raises:
        ConfigError: If it is not a file of `agentsys export parquet`.
        Unavailable: If pyarrow is not installed.
    """
    check_pyarrow(f"Reading {file}")
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file, read_dictionary=[*MAPPINGS])
        if missing := [name for name in ANNOTATIONS if name not in table.column_names]:
            raise KeyError(missing[0])  # another version wrote it, or somebody took it away
        mappings = {name: _parse_mappings(table.column(name)) for name in MAPPINGS}
        frame: pd.DataFrame = table.drop_columns([*MAPPINGS]).to_pandas()
        for name, values in mappings.items():
            frame[name] = values
        for name in frame.columns:
            kind = ANNOTATIONS.get(name, "object")
            if kind.startswith("tuple"):
                frame[name] = [*map(tuple, frame[name])]
            elif kind == "object" or (kind == "str | None" and frame[name].isna().all()):
                frame[name] = frame[name].astype(object).where(frame[name].notna(), None)
        frame = frame[table.column_names]
        frame.attrs = orjson.loads(table.schema.metadata[_ATTRS])
    except (OSError, ValueError, KeyError, TypeError) as error:  # pyarrow's own errors are among these
        raise ConfigError(
            f"{file} is not what `agentsys export parquet` writes ({type(error).__name__}): export the runs again."
        ) from None
    return frame


def _parse_mappings(column: pa.ChunkedArray) -> pd.Series[Any]:
    """Mappings from JSON; each line has its own, to change at will."""
    import pandas as pd

    values: list[dict[str, Any]] = []
    for chunk in column.chunks:
        make = [
            dict if text == "{}" else partial(orjson.loads, text) for text in chunk.dictionary.to_pylist()
        ]
        values += [make[place]() for place in chunk.indices.to_pylist()]
    return pd.Series(values, dtype=object)
