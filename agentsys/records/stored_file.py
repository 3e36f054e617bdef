"""`read_stored`: one file -> a `CaseRow`, whoever wrote it; `UnreadableRecord` where that cannot be."""

from __future__ import annotations

import json

import orjson

from agentsys.records.case_row import CaseRow
from agentsys.records.formats.agentdojo import published_row
from agentsys.records.formats.agentsys import OWN_KEY, own_row
from agentsys.records.formats.drift import drift_row, is_drift
from agentsys.records.unreadable import UnreadableRecord


def read_stored(path: str) -> CaseRow | None:
    """The case a file holds.

    Args:
        path: The file's path.

    Returns:
        None for JSON that is something else (a plan, a cache).

    Raises:
        UnreadableRecord: If the file cannot be read or should hold a case and does not.
    """
    stored = json_of(path)
    if not isinstance(stored, dict):
        return None
    if OWN_KEY in stored:
        return own_row(stored, path)
    if is_drift(stored):
        return drift_row(stored, path)
    if "suite_name" in stored and "user_task_id" in stored:
        return published_row(stored, path)
    return None


def json_of(path: str) -> object:
    """What a file holds, with everything replaced that no file of ours could hold.

    Raises:
        UnreadableRecord: If it cannot be read or is not JSON.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  Path.open costs 10% more over 40,000 files
            content = file.read()
    except OSError as error:
        raise UnreadableRecord(f"cannot be read ({error.strerror})") from None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        # AgentDojo writes with the standard library, which lets NaN and lone surrogates through.
        return _storable(json.loads(content))
    except (ValueError, RecursionError):
        state = "empty" if not content.strip() else "not valid JSON, perhaps cut off"
        raise UnreadableRecord(f"{state}; the next run of its case writes it anew") from None


def _storable(value: object) -> object:
    """A value without what no file of ours could hold: lone surrogates, whole numbers beyond 64 bits."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, int) and value.bit_length() > 63:
        return float(value) if value.bit_length() < 1000 else float("inf")
    return value
