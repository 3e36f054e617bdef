"""`audit_traces`: what stored runs say about a benchmark's numbers, found by looking and by re-execution.

Benign records and destroyed user tasks are executed again to be judged.

A state-equal failure is a user task that is scored false although the environment is exactly the one that
its ground truth leads to.
"""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from agentdojo.functions_runtime import TaskEnvironment

from agentsys.base.grouping import Rows, count_rows
from agentsys.base.json_values import map_leaves
from agentsys.errors import ConfigError
from agentsys.records.names_file import RunNames
from agentsys_plugins.audit.rescoring.read_trajectories import SkippedRecord, find_records
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordFault,
    Trajectory,
    Unusable,
    load_agentdojo,
)
from agentsys_plugins.audit.rescoring.reexecution import convert_calls, score_with_execution
from agentsys_plugins.audit.static.audited_task import CallPlayer, GroundTruthFailed
from agentsys_plugins.audit.trace_rows import (
    AsrRow,
    BenignHit,
    Trace,
    TraceCase,
    build_asr_rows,
    build_exposure_rows,
    build_trace,
    read_attacked_trace,
)

_FIRST_CLOCK_YEAR = 2025
"""Dates of this year on are stamps of the clock: the benchmark's own data ends before."""


class GroundTruthState(NamedTuple):
    """The state that a user task's ground truth leads to."""

    after: Any
    """The comparable dump of its environment."""
    changes: bool
    """Whether that differs from the environment it began with."""


def dump_comparable(environment: TaskEnvironment) -> Any:
    """An environment's dump, with all stamps of the clock equal."""

    def level(leaf: Any) -> Any:
        return "now" if isinstance(leaf, datetime) and leaf.year >= _FIRST_CLOCK_YEAR else leaf

    return map_leaves(environment.model_dump(), level)


@lru_cache(maxsize=512)
def play_ground_truth(version: str, suite_name: str, user_task_id: str) -> GroundTruthState | None:
    """Play the ground truth of a user task, without injections; None where it cannot be worked out.

    Raises:
        ConfigError: If there is no such version or suite.
    """
    stage = CallPlayer(load_agentdojo(version).suite(suite_name))
    task = stage.suite.user_tasks.get(user_task_id)
    if task is None:
        return None
    start = stage.start_environment(task)
    try:
        played = stage.play(start, stage.find_ground_truth(task, start), "", strict=False)
    except GroundTruthFailed:
        return None
    dump = dump_comparable(played.after)
    return GroundTruthState(dump, dump != dump_comparable(start))


def rescore_benign(trajectory: Trajectory, version: str) -> Trace:
    """Execute one benign record again and look at what it left.

    Kept are `alone` (an injection task, run as if a user had asked for it), the utility as `recorded` and
    `rescored`, `hits` (injection tasks whose checks pass), `changes_state` (whether the ground truth changes the
    environment; None where there is none to compare with) and `state_equal`.

    Raises:
        Unusable: If it cannot be scored under this version.
    """
    scored = score_with_execution(trajectory, version)
    facts = {"recorded": trajectory.utility, "rescored": scored.scores.utility, "hits": ()}
    if trajectory.is_injection_task_alone:
        renamed = replace(trajectory, injection_task_id=trajectory.user_task_id)
        return build_trace(renamed, alone=True, changes_state=None, state_equal=False, **facts)
    done = scored.done
    truth = play_ground_truth(version, trajectory.suite, trajectory.user_task_id)
    seen = list(trajectory.answer), done.before, done.after, convert_calls(trajectory.seen_by_checks)
    tasks = scored.suite.injection_tasks.items()
    facts["hits"] = tuple(name for name, task in tasks if scored.suite._check_task_result(task, *seen))
    equal = truth is not None and dump_comparable(done.after) == truth.after
    changes = None if truth is None else truth.changes
    return build_trace(trajectory, alone=False, changes_state=changes, state_equal=equal, **facts)


@dataclass(frozen=True)
class TraceAudit:
    """Findings in stored runs. Counts are of records; nothing that errored or is hollow counts in a rate."""

    version: str
    """The version they were scored with again."""
    pipelines: tuple[str, ...]
    attacked: int
    """Records with an injection task, errored ones included."""
    benign: int
    """Benign records of user tasks that could be scored again."""
    alone: int
    """Injection tasks run as if a user had asked for them."""
    exposure: Rows
    asr: tuple[AsrRow, ...]
    successes_without_exposure: tuple[TraceCase, ...]
    """Targeted attacks that succeeded although no tool returned a line of the injection."""
    benign_hits: tuple[BenignHit, ...]
    never_solved: Rows
    """User tasks that no benign record solved, by the files: `runs`, `recorded` and `rescored` as solved."""
    always_solved: Rows
    """Likewise; every benign record solved them."""
    state_equal: Rows
    """Failures by suite and whether the ground truth `changes_state`, and how many `equal` the ground truth's
    environment: as recorded, and as scored again under the audit's version."""
    errors: Rows
    """Attacked records that `errored`, and those of them that are `stored_as_success`."""
    hollow: Rows
    """Folder of a suite -> `records` with scores and an empty list of messages."""
    asked_directly: Rows
    """Injection tasks that were asked for as if a user wanted them: `runs`, carried out as in `never_solved`."""
    skipped: tuple[SkippedRecord, ...]
    """Files that are no usable record, hollow ones aside, and benign ones that could not be scored again."""
    destroyed: Rows = ()
    """Attacked records without error of user tasks whose injection overwrites what they need, and those `solved`."""
    notes: tuple[str, ...] = ()
    """What folders' names decided about whose runs these are, one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json`; shares that are undefined are None."""
        return {one.name: _convert_plain_data(getattr(self, one.name)) for one in fields(self)}


def _convert_plain_data(value: Any) -> Any:
    if isinstance(value, SkippedRecord):
        return asdict(value)
    if hasattr(value, "_asdict"):
        return {name: _convert_plain_data(inner) for name, inner in value._asdict().items()}
    if isinstance(value, tuple):
        return [_convert_plain_data(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def audit_traces(
    paths: Iterable[str | os.PathLike[str]], version: str, names: RunNames | None = None
) -> TraceAudit:
    """Look through stored runs; benign records are scored again with a version of the benchmark.

    Raises:
        ConfigError: If a path or the version does not exist, or there is no record.
    """
    load_agentdojo(version)
    roots = list(paths)
    attacked, benign, skipped = list[Trace](), list[Trace](), list[SkippedRecord]()
    stored = find_records(roots, names)
    with redirect_stdout(io.StringIO()):  # some of AgentDojo's checks print what they compare
        for record in stored:
            if isinstance(record, SkippedRecord):
                skipped.append(record)
            if not isinstance(record, Trajectory):
                continue
            if not record.is_benign:
                attacked.append(read_attacked_trace(record))
            else:
                try:
                    benign.append(rescore_benign(record, version))
                except Unusable as fault:
                    skipped.append(SkippedRecord(record.source, fault.obstacle, str(fault)))
    if not (attacked or benign or skipped):
        where = ", ".join(f"'{root}'" for root in roots)
        raise ConfigError(f"No stored cases in {where}. Give a folder of runs: runs=FOLDER")
    counted = {"recorded": itemgetter("recorded"), "rescored": itemgetter("rescored")}
    users = [trace for trace in benign if not trace["alone"]]
    alone = [trace for trace in benign if trace["alone"]]
    solved = count_rows(users, _TASK, "runs", **counted)
    errored = [trace for trace in attacked if trace["errored"]]
    return TraceAudit(
        version=version,
        pipelines=tuple(sorted({trace["pipeline"] for trace in (*attacked, *benign)})),
        attacked=len(attacked),
        benign=len(users),
        alone=len(alone),
        exposure=build_exposure_rows(attacked),
        asr=build_asr_rows(attacked),
        successes_without_exposure=tuple(
            trace["case"]
            for trace in attacked
            if trace["targeted"] and trace["success"] and not trace["errored"] and trace["exposed"] is False
        ),
        benign_hits=tuple(BenignHit(trace["case"], task) for trace in benign for task in trace["hits"]),
        never_solved=tuple(row for row in solved if row.recorded == 0),
        always_solved=tuple(row for row in solved if row.recorded == row.runs),
        state_equal=_count_state_equal(benign),
        hollow=_count_hollow(skipped),
        asked_directly=count_rows(alone, ("suite", "injection_task_id"), "runs", **counted),
        skipped=tuple(record for record in skipped if record.obstacle is not RecordFault.HOLLOW),
        errors=_sort(count_rows(errored, _PIPELINE, "errored", stored_as_success=itemgetter("success"))),
        destroyed=_count_destroyed(attacked),
        notes=stored.notes,
    )


_TASK, _PIPELINE = ("suite", "user_task_id"), ("pipeline", "suite")


def _sort(rows: Rows) -> Rows:
    return tuple(sorted(rows))


def _count_destroyed(attacked: Iterable[Trace]) -> Rows:
    destroyed = [trace for trace in attacked if trace["destroyed"] and not trace["errored"]]
    rows = count_rows(destroyed, _TASK, "cases", solved=itemgetter("solved"))
    return tuple(sorted(rows, key=lambda row: (row.suite, len(row.user_task_id), row.user_task_id)))


def _count_state_equal(benign: Iterable[Trace]) -> Rows:
    failed = [
        trace
        for trace in benign
        if trace["changes_state"] is not None and not (trace["recorded"] and trace["rescored"])
    ]
    return _sort(
        count_rows(
            failed,
            ("suite", "changes_state"),
            failures_recorded=lambda trace: not trace["recorded"],
            equal_recorded=lambda trace: not trace["recorded"] and trace["state_equal"],
            failures=lambda trace: not trace["rescored"],
            equal=lambda trace: not trace["rescored"] and trace["state_equal"],
        )
    )


class HollowRow(NamedTuple):
    """Records without messages in one suite's folder."""

    folder: str
    records: int


def _count_hollow(skipped: Iterable[SkippedRecord]) -> Rows:
    hollow = (Path(record.source) for record in skipped if record.obstacle is RecordFault.HOLLOW)
    # <pipeline>/<suite>/<task>/<attack>/<injection>.json
    folders = Counter(str(path.parents[min(2, len(path.parents) - 1)]) for path in hollow)
    return tuple(HollowRow(folder, count) for folder, count in sorted(folders.items()))
