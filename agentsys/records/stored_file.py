"""`read_case_file`: one file -> a `CaseRow`, whoever wrote it; `identify_case`: the same, not yet taken apart."""

from __future__ import annotations

import json
from dataclasses import fields
from math import inf
from typing import Any, Literal, NamedTuple

import orjson

from agentsys.base.packed_json import read_json_bytes
from agentsys.records.case import ODD_NUMBERS, UnreadableRecord
from agentsys.records.case_row import CaseRow

Producer = Literal["agentdojo", "agentsys", "drift"]
"""Who wrote a file: AgentDojo's runner (old or new), ours, or DRIFT's driver."""


class RawCase(NamedTuple):
    """A file that should hold a case; nothing in it is checked yet."""

    producer: Producer
    content: dict[str, Any]
    """The file's JSON object."""


def read_case_file(path: str, content: bytes | None = None) -> CaseRow | None:
    """The case a file holds; as `read_case_columns` else."""
    columns = read_case_columns(path, content)
    return None if columns is None else CaseRow(**columns)


def read_case_columns(path: str, content: bytes | None = None) -> dict[str, Any] | None:
    """The case a file holds, as the arguments of `CaseRow`; `content` is what stands in it, if that is known.

    Returns:
        None for JSON that is something else (a plan, a cache).

    Raises:
        UnreadableRecord: If the file cannot be read or should hold a case and does not.
    """
    found = identify_case(path, content)
    if found is None:
        return None
    # The formats are imported with the first file that is taken apart: as a rule all are in an index.
    if found.producer == "agentsys":
        from agentsys.records.agentsys_format import build_own_columns

        return _drop_odd_numbers(build_own_columns(found.content, path))
    from agentsys.records.agentdojo_format import build_agentdojo_columns, build_drift_columns

    build = build_drift_columns if found.producer == "drift" else build_agentdojo_columns
    return _drop_odd_numbers(build(found.content, path))


_NUMBERS = frozenset(
    column.name for column in fields(CaseRow) if set(str(column.type).split(" | ")) & {"int", "float"}
)


def _drop_odd_numbers(row: dict[str, Any]) -> dict[str, Any]:
    """The row with NaN, infinities and what no column holds as unknown: one of them would void a sum over all cases.

    Raises:
        UnreadableRecord: If it is the number of the repetition.
    """
    odd: dict[str, Any] = {
        name: None
        for name, value in row.items()
        if type(value) is float and name in _NUMBERS and _is_odd(value)
    }
    if "epoch" in odd:
        raise UnreadableRecord("case.epoch: no number that can be counted")
    for name in ("measured", "cost_by_role", "tokens_by_role"):
        values = row.get(name)
        if values and any(map(_is_odd, values.values())):
            odd[name] = {key: value for key, value in values.items() if not _is_odd(value)}
    return row | odd | {"notes": (*row["notes"], f"{ODD_NUMBERS}{', '.join(odd)}")} if odd else row


def _is_odd(value: object) -> bool:
    return isinstance(value, float) and not abs(value) < inf


def identify_case(path: str, content: bytes | None = None) -> RawCase | None:
    """A file's JSON and who wrote it, by its keys.

    Returns:
        None for JSON that is no case (a plan, a cache).

    Raises:
        UnreadableRecord: If the file cannot be read.
    """
    from agentsys.records.agentdojo_format import is_drift_record
    from agentsys.records.schema import OWN_KEY

    stored = load_stored_json(path, content)
    if not isinstance(stored, dict):
        return None
    if OWN_KEY in stored:
        return RawCase("agentsys", stored)
    if is_drift_record(stored):
        return RawCase("drift", stored)
    named = "suite_name" in stored and "user_task_id" in stored
    return RawCase("agentdojo", stored) if named else None


def load_stored_json(path: str, content: bytes | None = None) -> object:
    """Read a file's JSON, with everything replaced that no file of ours could hold.

    Raises:
        UnreadableRecord: If it cannot be read or is not JSON.
    """
    try:
        content = read_json_bytes(path) if content is None else content
    except OSError as error:
        raise UnreadableRecord(f"cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise UnreadableRecord(f"{error}; the next run of its case writes it anew") from None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        # AgentDojo writes with the standard library, which lets NaN and lone surrogates through.
        return _make_storable(json.loads(content))
    except (ValueError, RecursionError):
        state = "empty" if not content.strip() else "not valid JSON, perhaps cut off"
        raise UnreadableRecord(f"{state}; the next run of its case writes it anew") from None


def _make_storable(value: object) -> object:
    """A value without what no file of ours could hold: lone surrogates, whole numbers beyond 64 bits."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_make_storable(item) for item in value]
    if isinstance(value, dict):
        return {_make_storable(key): _make_storable(item) for key, item in value.items()}
    if isinstance(value, int) and value.bit_length() > 63:
        return float(value) if value.bit_length() < 1000 else float("inf")
    return value
