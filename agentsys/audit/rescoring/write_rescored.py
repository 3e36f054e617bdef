"""`write_rescored`: re-scored records as files of their own, in AgentDojo's layout; originals stay.

A file is the original with the new scores and version. AgentDojo's loader and ours read it; each passes
over the keys that only the other knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson

from agentsys.atomic_file import write_atomically
from agentsys.audit.rescoring.rescore import RescoredCase
from agentsys.errors import ConfigError
from agentsys.models.replay.recorded_run import parse_recorded_messages
from agentsys.records.case import Case, safe_name
from agentsys.records.schema import OWN_KEY
from agentsys.records.stored_file import load_stored_json
from agentsys.runs.build_record import to_plain_message


def write_rescored(cases: Iterable[RescoredCase], out: Path) -> int:
    """Write one file per re-scored record: `<pipeline>/<suite>/<task>/<attack>/<injection>.json`.

    Returns:
        How many were written. Nothing is, if any of the files would be in the way of another.

    Raises:
        ConfigError: If two records would become one file, or a record would overwrite an original.
        OSError: If the disk refuses.
    """
    listed = list(cases)
    places = _plan_files(listed, out)
    for place, case in places.items():
        write_atomically(place, _build_content(case))
    return len(places)


def _plan_files(cases: Iterable[RescoredCase], out: Path) -> dict[Path, RescoredCase]:
    places: dict[Path, RescoredCase] = {}
    originals = set()
    for case in cases:
        place = out / make_relative_path(case)
        source = case.trajectory.source
        originals.add(Path(source).resolve())
        if place in places:
            raise ConfigError(
                f"{places[place].trajectory.source} and {source} would both be written to {place};"
                " re-score them in two commands with a folder each."
            )
        places[place] = case
    taken = next((place for place in places if place.resolve() in originals), None)
    if taken is not None:
        raise ConfigError(f"{taken} is one of the records themselves; give another folder: --out DIR")
    return places


def make_relative_path(case: RescoredCase) -> str:
    """The path of a re-scored record below the folder. Names from a file cannot lead out of it."""
    done = case.trajectory
    if done.form == "agentsys":
        return _relabel(load_stored_json(done.source), case.version).key
    parts = (done.pipeline, done.suite, done.user_task_id, done.attack)
    return "/".join([*map(safe_name, parts), f"{safe_name(done.injection_task_id or 'none')}.json"])


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
    """With AgentDojo's keys beside DRIFT's, which tell our loader that it was DRIFT."""
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
    facts = {} if case.fixed is None else case.fixed.facts()
    if case.utility_of_answer is not None:
        facts["utility_of_answer"] = case.utility_of_answer
    if isinstance(recorded, dict) and "repeats" in recorded:
        facts["repeats"] = recorded["repeats"]
    return facts
