"""A re-scoring as data: one line per record for every format, and re-scored records as files.

`write_rescored` writes files in AgentDojo's layout; the originals stay.

A file is the original with the new scores and version. AgentDojo's loader and ours read it; each passes
over the keys that only the other knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from agentsys.analysis.tables.table_document import LongForm, Output
from agentsys.base.atomic_file import write_atomically
from agentsys.errors import ConfigError
from agentsys.models.recorded_runs import parse_recorded_messages
from agentsys.records.case import Case, make_safe_name
from agentsys.records.schema import OWN_KEY
from agentsys.records.stored_file import load_stored_json
from agentsys.runs.build_record import to_plain_message
from agentsys_plugins.audit.rescoring.recorded_trajectory import Trajectory
from agentsys_plugins.audit.rescoring.rescore import RescoredCase, RescoringResult
from agentsys_plugins.audit.rescoring.rescoring_document import (
    build_rescoring_document,
    count_agreements,
    count_fixed_rows,
    select_changed_cases,
)
from agentsys_plugins.audit.rescoring.score_flips import ScoreFlip


def write_rescored(cases: Iterable[RescoredCase], out: Path) -> int:
    """Write one file per re-scored record: `<pipeline>/<suite>/<task>/<attack>/<injection>.json`.

    Returns:
        How many were written. Nothing is, if any of the files would be in the way of another.

    Raises:
        ConfigError: If two records would become one file, or a record would overwrite an original.
        OSError: If the disk refuses.
    """
    listed = list(cases)
    paths = _plan_files(listed, out)
    for path, case in paths.items():
        write_atomically(path, _build_content(case))
    return len(paths)


def _plan_files(cases: Iterable[RescoredCase], out: Path) -> dict[Path, RescoredCase]:
    paths: dict[Path, RescoredCase] = {}
    originals = set()
    for case in cases:
        path = out / make_relative_path(case)
        source = case.trajectory.source
        originals.add(Path(source).resolve())
        if path in paths:
            raise ConfigError(
                f"{paths[path].trajectory.source} and {source} would both be written to {path};"
                " re-score them in two commands with a folder each."
            )
        paths[path] = case
    original = next((path for path in paths if path.resolve() in originals), None)
    if original is not None:
        raise ConfigError(f"{original} is one of the records themselves; give another folder: --out DIR")
    return paths


def make_relative_path(case: RescoredCase) -> str:
    """The path of a re-scored record below the folder. Names from a file cannot lead out of it."""
    done = case.trajectory
    if done.form == "agentsys":
        return _relabel(load_stored_json(done.source), case.version).key
    parts = (done.pipeline, done.suite, done.user_task_id, done.attack)
    return "/".join([*map(make_safe_name, parts), f"{make_safe_name(done.injection_task_id or 'none')}.json"])


def _relabel(stored: Any, version: str) -> Case:
    return Case(**{**stored[OWN_KEY]["case"], "version": version})


def _build_content(case: RescoredCase) -> bytes:
    stored = load_stored_json(case.trajectory.source)
    assert isinstance(stored, dict)  # it was read as a record before
    builders = {"agentsys": _build_own_form, "drift": _build_drift_form, "agentdojo": _build_agentdojo_form}
    return orjson.dumps(builders[case.trajectory.form](stored, case), option=orjson.OPT_INDENT_2)


def _build_agentdojo_form(stored: Mapping[str, Any], case: RescoredCase) -> dict[str, Any]:
    security = case.scores.security
    return {
        **stored,
        "utility": case.scores.utility,
        # Of a benign run AgentDojo's value has no meaning; it stays as it was.
        "security": stored.get("security", True) if security is None else security,
        "benchmark_version": case.version,
        "rescored": _build_note(case),
    }


def _build_drift_form(stored: Mapping[str, Any], case: RescoredCase) -> dict[str, Any]:
    """The record with AgentDojo's keys beside DRIFT's, which tell our loader that it was DRIFT."""
    key = "conversations" if "conversations" in stored else "messages"
    rest = {name: value for name, value in stored.items() if name != key}
    blocks = [to_plain_message(message) for message in parse_recorded_messages(stored[key])]
    return {
        "injections": {},
        "error": None,
        "duration": 0.0,
        # AgentDojo's loader takes this key for the sign of content blocks.
        "agentdojo_package_version": None,
        **_build_agentdojo_form(rest, case),
        "messages": blocks,
    }


def _build_own_form(stored: Mapping[str, Any], case: RescoredCase) -> dict[str, Any]:
    block = stored[OWN_KEY]
    relabelled = _relabel(stored, case.version)
    note = f"re-scored under {case.version}; was {block['case']['version']}"
    renewed = {
        **block,
        "case": relabelled.model_dump(),
        "utility": case.scores.utility,
        "security": bool(case.scores.security),
        "measured": _update_measured(case, block.get("measured")),
        "notes": [*block.get("notes", ()), note],
    }
    return {**_build_agentdojo_form(stored, case), "pipeline_name": relabelled.pipeline, OWN_KEY: renewed}


def _build_note(case: RescoredCase) -> dict[str, Any]:
    """Note down what a reader of the file should know."""
    done = case.trajectory
    return {
        "from": done.source,
        "recorded_version": done.version,
        "recorded_utility": done.utility,
        "recorded_security": done.security,
        "measured": _update_measured(case),
    }


def _update_measured(case: RescoredCase, recorded: object = None) -> dict[str, Any]:
    """The facts of the version it was scored with now; repeated calls, of no version, stay as recorded."""
    facts = {} if case.fixed is None else case.fixed.list_facts()
    if case.utility_of_answer is not None:
        facts["utility_of_answer"] = case.utility_of_answer
    if isinstance(recorded, dict) and "repeats" in recorded:
        facts["repeats"] = recorded["repeats"]
    return facts


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
    return {
        "agreement": [row._asdict() for row in count_agreements(found.cases)],
        "fixed": {
            "fixes": list(found.fixes),
            "rows": [row._asdict() for row in count_fixed_rows(found.cases)],
            "changed": [_describe_change(case) for case in select_changed_cases(found.cases)],
        },
        "flips": [_describe_flip(flip) for case in found.cases for flip in case.flips],
        "skipped": [asdict(record) for record in found.skipped],
        "other_files": found.other_files,
    }


def _build_line(case: RescoredCase) -> dict[str, Any]:
    done, fixed = case.trajectory, case.fixed
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
        # None where there is no fixed score, as of an attack's success in benign records.
        "utility_fixed": None if fixed is None else fixed.utility,
        "security_fixed": None if fixed is None or done.is_benign else fixed.security,
        "changed_by": None if fixed is None else " ".join(fixed.changed_by),
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


def _describe_change(case: RescoredCase) -> dict[str, Any]:
    assert case.fixed is not None
    line = _build_line(case)
    line = {name: value for name, value in line.items() if not name.endswith("_reason")}
    return {**line, "changed_by": list(case.fixed.changed_by)}


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
