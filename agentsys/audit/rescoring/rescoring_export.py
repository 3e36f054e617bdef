"""A re-scoring ready to be written: one record per re-scored record, and in JSON everything else too."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from agentsys.analysis.tables.output import LongForm, Output
from agentsys.audit.rescoring.agreement import count_agreements, select_changed_cases, count_fixed_rows
from agentsys.audit.rescoring.explain import ScoreFlip
from agentsys.audit.rescoring.rescore import RescoredCase, RescoringResult
from agentsys.audit.rescoring.rescoring_document import build_rescoring_document
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory

RESCORING_COLUMNS = {
    "pipeline": "str",
    "suite": "str",
    "user_task_id": "str",
    "injection_task_id": "str",
    "attack": "str",
    "recorded_version": "str",
    "version": "str",
    "recorded_utility": "bool",
    "utility": "bool",
    "utility_reason": "str",
    "recorded_security": "bool",
    "security": "bool",
    "security_reason": "str",
    "utility_fixed": "bool",
    "security_fixed": "bool",
    "changed_by": "str",
    "utility_of_answer": "bool",
    "source": "str",
}
"""Column of the records -> what it holds; what does not apply is empty."""


def build_rescoring_output(found: RescoringResult) -> Output:
    """Make a re-scoring ready to be written in any form."""
    records = LongForm(RESCORING_COLUMNS, [_build_line(case) for case in found.cases])
    return Output("agentsys rescore", build_rescoring_document(found), records, _build_json_data(found))


def _build_json_data(found: RescoringResult) -> dict[str, Any]:
    """What JSON holds: `agreement`, `fixed`, `flips`, `skipped` (all of them) and `other_files`."""
    return {
        "agreement": [asdict(row) for row in count_agreements(found.cases)],
        "fixed": {
            "fixes": list(found.fixes),
            "rows": [asdict(row) for row in count_fixed_rows(found.cases)],
            "changed": [_describe_change(case) for case in select_changed_cases(found.cases)],
        },
        "flips": [_describe_flip(flip) for case in found.cases for flip in case.flips],
        "skipped": [
            {"source": r.source, "obstacle": r.obstacle.value, "reason": r.reason} for r in found.skipped
        ],
        "other_files": found.other_files,
    }


def _build_line(case: RescoredCase) -> dict[str, Any]:
    done = case.trajectory
    reasons = {flip.score: flip.reason.value for flip in case.flips}
    return {
        **_name_case(done),
        "recorded_version": done.version,
        "version": case.version,
        "recorded_utility": done.utility,
        "utility": case.scores.utility,
        "utility_reason": reasons.get("utility"),
        "recorded_security": done.security,
        "security": case.scores.security,
        "security_reason": reasons.get("security"),
        **_list_fixed_columns(case),
        "utility_of_answer": case.utility_of_answer,
        "source": done.source,
    }


def _name_case(done: Trajectory) -> dict[str, str | None]:
    return {
        "pipeline": done.shown_pipeline,
        "suite": done.suite,
        "user_task_id": done.user_task_id,
        "injection_task_id": done.injection_task_id,
        "attack": done.attack,
    }


def _list_fixed_columns(case: RescoredCase) -> dict[str, Any]:
    """Fixed scores; None where there are none, as an attack's success in benign records."""
    fixed = case.fixed
    return {
        "utility_fixed": None if fixed is None else fixed.utility,
        "security_fixed": None if fixed is None or case.trajectory.is_benign else fixed.security,
        "changed_by": None if fixed is None else " ".join(fixed.changed_by),
    }


def _describe_change(case: RescoredCase) -> dict[str, Any]:
    assert case.fixed is not None
    line = _build_line(case)
    kept = {name: value for name, value in line.items() if not name.endswith("_reason")}
    return {**kept, "changed_by": list(case.fixed.changed_by)}


def _describe_flip(flip: ScoreFlip) -> dict[str, Any]:
    return {
        **_name_case(flip.trajectory),
        "version": flip.version,
        "score": flip.score,
        "recorded": flip.recorded,
        "rescored": flip.rescored,
        "reason": flip.reason.value,
        "detail": flip.detail,
        "source": flip.trajectory.source,
    }
