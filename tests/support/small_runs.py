"""Small runs in tests: a listener that only counts, and records with everything that is time left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson

from agentsys.runs.run_totals import Listener

_NOW = re.compile(r"20(?:2[5-9]|[3-9]\d)-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?")
_TIMES = {"duration", "duration_s", "latency_s", "evaluation_timestamp"}

Canonical = dict[str, Any]


def canonical(value: Any) -> Any:
    """JSON data less durations, with datetimes that mean "now" masked (sent mail is stamped so)."""
    if isinstance(value, dict):
        return {key: canonical(inner) for key, inner in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [canonical(inner) for inner in value]
    return _NOW.sub("<now>", value) if isinstance(value, str) else value


def records_in(folder: Path) -> dict[str, Canonical]:
    """Path under `folder` -> record, canonical, for every record there."""
    return {
        str(path.relative_to(folder)): canonical(orjson.loads(path.read_bytes()))
        for path in sorted(folder.rglob("*.json"))
        if ".agentsys" not in path.parts
    }


def errors_in(records: dict[str, Canonical]) -> dict[str, str]:
    """Path -> what went wrong and where, for the records that are errors: a failing test then says why."""
    return {
        path: f"{record['agentsys']['error_kind']}: {record['error']}\n{record['agentsys'].get('traceback')}"
        for path, record in records.items()
        if record["agentsys"]["status"] != "ok"
    }


def rate(records: dict[str, Canonical], name: str, what: str, *, attacked: bool) -> float:
    """Share of a defense's cases, benign or attacked, in which `what` (utility, security) is true."""
    cases = [(record["agentsys"]["case"], record["agentsys"][what]) for record in records.values()]
    chosen = [
        value
        for case, value in cases
        if case["defense"].partition("+")[0] == name and (case["injection_task_id"] is not None) is attacked
    ]
    return sum(chosen) / len(chosen)


class Silent(Listener):
    """Only counts."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.attempts: list[Any] = []

    def on_case_stored(self, record: Any) -> None:
        self.records.append(record)

    def on_attempt_stored(self, record: Any) -> None:
        self.attempts.append(record)
