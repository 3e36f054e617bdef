"""A re-scoring as CSV (one line per record) or JSON, for other programs."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from typing import Any

import orjson

from agentsys.analysis.tables.escaping import csv_cell, plain
from agentsys.rescoring.agreement import agreements, changed_cases, fixed_rows
from agentsys.rescoring.explain import ScoreFlip
from agentsys.rescoring.rescore import RescoredCase, Rescoring

COLUMNS = (
    "pipeline",
    "suite",
    "user_task_id",
    "injection_task_id",
    "attack",
    "recorded_version",
    "version",
    "recorded_utility",
    "utility",
    "utility_reason",
    "recorded_security",
    "security",
    "security_reason",
    "utility_fixed",
    "security_fixed",
    "changed_by",
    "utility_of_answer",
    "source",
)
"""Columns of the CSV."""


def rescoring_csv(found: Rescoring) -> str:
    """One header line, then one line per re-scored record; what does not apply is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for case in found.cases:
        line = _line(case)
        writer.writerow(
            {key: csv_cell(value) if isinstance(value, str) else value for key, value in line.items()}
        )
    return text.getvalue()


def rescoring_json(found: Rescoring) -> str:
    """An object with `agreement`, `fixed`, `flips`, `skipped` (all of them) and `other_files`."""
    stored = {
        "agreement": [_plain(asdict(row)) for row in agreements(found.cases)],
        "fixed": {
            "fixes": list(found.fixes),
            "rows": [_plain(asdict(row)) for row in fixed_rows(found.cases)],
            "changed": [_changed(case) for case in changed_cases(found.cases)],
        },
        "flips": [_flip(flip) for case in found.cases for flip in case.flips],
        "skipped": [
            _plain({"source": r.source, "obstacle": r.obstacle.value, "reason": r.reason})
            for r in found.skipped
        ],
        "other_files": found.other_files,
    }
    return orjson.dumps(stored, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _line(case: RescoredCase) -> dict[str, Any]:
    done = case.trajectory
    reasons = {flip.score: flip.reason.value for flip in case.flips}
    return {
        "pipeline": done.shown_pipeline,
        "suite": done.suite,
        "user_task_id": done.user_task_id,
        "injection_task_id": done.injection_task_id,
        "attack": done.attack,
        "recorded_version": done.version,
        "version": case.version,
        "recorded_utility": done.utility,
        "utility": case.scores.utility,
        "utility_reason": reasons.get("utility"),
        "recorded_security": done.security,
        "security": case.scores.security,
        "security_reason": reasons.get("security"),
        **_fixed(case),
        "utility_of_answer": case.utility_of_answer,
        "source": done.source,
    }


def _fixed(case: RescoredCase) -> dict[str, Any]:
    """Fixed scores; None where there are none, as an attack's success in benign records."""
    fixed = case.fixed
    return {
        "utility_fixed": None if fixed is None else fixed.utility,
        "security_fixed": None if fixed is None or case.trajectory.is_benign else fixed.security,
        "changed_by": None if fixed is None else " ".join(fixed.changed_by),
    }


def _changed(case: RescoredCase) -> dict[str, Any]:
    assert case.fixed is not None
    line = _line(case)
    kept = {name: value for name, value in line.items() if not name.endswith("_reason")}
    return _plain({**kept, "changed_by": list(case.fixed.changed_by)})


def _flip(flip: ScoreFlip) -> dict[str, Any]:
    done = flip.trajectory
    return _plain(
        {
            "pipeline": done.shown_pipeline,
            "suite": done.suite,
            "user_task_id": done.user_task_id,
            "injection_task_id": done.injection_task_id,
            "attack": done.attack,
            "version": flip.version,
            "score": flip.score,
            "recorded": flip.recorded,
            "rescored": flip.rescored,
            "reason": flip.reason.value,
            "detail": flip.detail,
            "source": done.source,
        }
    )


def _plain(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) if isinstance(value, str) else value for name, value in stored.items()}
