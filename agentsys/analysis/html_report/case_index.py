"""`IndexRow`: one line of the report's list of cases, with what the filters look at."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypedDict

from agentsys.analysis.html_report.loose import number
from agentsys.records.case_row import NO_ATTACK, CaseRow, make_case_id

_NUMBERED = re.compile(r"(\D*)([0-9]{0,9})")

ShownOutcome = Literal["error", "attack_succeeded", "attack_failed", "attack_unseen", "benign"]
"""`attack_unseen`: it failed, and no tool had returned the payload."""


class IndexRow(TypedDict):
    """A case in the list. The page's script reads these names."""

    id: str
    """The name of the case in links."""
    model: str
    simulated: bool
    benchmark: str
    defense: str
    attack: str
    suite: str
    user_task: str
    injection_task: str
    """Empty in benign cases."""
    epoch: int
    outcome: ShownOutcome
    solved: bool | None
    """None where the case errored."""
    error_kind: str | None
    exposed_raw: bool | None
    exposed_shown: bool | None
    injection_round: int | None
    length: int | None
    """Tool results in the recorded messages."""
    tokens: int | None
    cost_usd: float | None
    seconds: float | None
    written: float | None
    """When the file was written, in seconds since 1970; None if it is gone."""
    path: str
    config: str | None


def in_reading_order(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """By task, so that what several defenses made of one case stands together; `task_2` before `task_10`."""
    return sorted(cases, key=_place)


def _place(case: CaseRow) -> tuple[object, ...]:
    task = (case.benchmark, case.suite, _numbered(case.user_task_id), _numbered(case.injection_task_id or ""))
    return (
        *task,
        case.attack,
        case.defense != "none",
        case.defense,
        case.table_model,
        case.version,
        case.epoch,
    )


def _numbered(name: str) -> list[tuple[str, int]]:
    """Names and the numbers in them, for sorting."""
    return [(text, int(digits or 0)) for text, digits in _NUMBERED.findall(name)]


def index_row(case: CaseRow) -> IndexRow:
    """The line of one case."""
    return {
        "id": make_case_id(case),
        "model": case.table_model,
        "simulated": case.simulated,
        "benchmark": f"{case.benchmark} {case.version}",
        "defense": case.defense,
        "attack": case.attack,
        "suite": case.suite,
        "user_task": case.user_task_id,
        "injection_task": case.injection_task_id or "",
        "epoch": case.epoch,
        "outcome": _outcome(case),
        "solved": case.utility if case.status == "ok" else None,
        "error_kind": case.error_kind,
        "exposed_raw": case.exposed_raw,
        "exposed_shown": case.exposed_shown,
        "injection_round": case.injection_round,
        "length": case.trajectory_length,
        "tokens": case.tokens,
        "cost_usd": number(case.cost_usd),
        "seconds": number(case.duration_s),
        "written": _written(case.source),
        "path": case.source,
        "config": case.config_hash,
    }


def _outcome(case: CaseRow) -> ShownOutcome:
    if case.status == "error":
        return "error"
    if case.attack == NO_ATTACK:
        return "benign"
    if case.injection_success:
        return "attack_succeeded"
    return "attack_unseen" if case.exposed_raw is False else "attack_failed"


def _written(source: str) -> float | None:
    try:
        return Path(source).stat().st_mtime_ns / 1e9
    except (OSError, ValueError):  # gone, a row of a results file, or a name that no file can have
        return None
