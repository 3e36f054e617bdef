"""`audit_traces`: what stored runs say about a benchmark's numbers, found by looking and by re-execution.

Benign records, destroyed user tasks and answer sections are executed again to be judged.

A state-equal failure is a user task that is scored false although the environment is exactly the one that
its ground truth leads to.
"""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agentdojo.functions_runtime import TaskEnvironment

from agentsys.audit.rescoring.read_trajectories import SkippedRecord, find_records
from agentsys.audit.rescoring.recorded_trajectory import (
    RecordFault,
    Trajectory,
    Unusable,
    load_agentdojo,
)
from agentsys.audit.rescoring.reexecution import (
    convert_calls,
    find_final_answer,
    score_final_answer,
    score_with_execution,
)
from agentsys.audit.rescoring.rescore import get_recorded_version
from agentsys.audit.static.audited_task import CallPlayer, GroundTruthFailed
from agentsys.audit.trace_rows import (
    AnswerRow,
    AsrRow,
    AttackedTrace,
    BenignHit,
    DestroyedRow,
    DirectRow,
    ErrorRow,
    ExposureRow,
    HollowRow,
    SolvedRow,
    StateEqualRow,
    TraceCase,
    build_asr_rows,
    build_exposure_rows,
    name_record,
    read_attacked_trace,
)
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.names_file import RunNames

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
    return _replace_stamps(environment.model_dump())


def _replace_stamps(value: Any) -> Any:
    if isinstance(value, datetime):
        return "now" if value.year >= _FIRST_CLOCK_YEAR else value
    if isinstance(value, Mapping):
        return {key: _replace_stamps(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_stamps(item) for item in value]
    return value


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


class BenignTrace(NamedTuple):
    """One benign record, scored again."""

    case: TraceCase
    alone: bool
    """Whether an injection task was run as if a user had asked for it."""
    recorded: bool
    """Its utility, by the file."""
    rescored: bool
    """Its utility under the audit's version."""
    hits: tuple[str, ...]
    """Injection tasks whose checks pass."""
    changes_state: bool | None
    """Whether the ground truth changes the environment; None where there is none to compare with."""
    state_equal: bool


def rescore_benign(trajectory: Trajectory, version: str) -> BenignTrace:
    """Execute one benign record again and look at what it left.

    Raises:
        Unusable: If it cannot be scored under this version.
    """
    scored = score_with_execution(trajectory, version)
    scores, done = scored.scores, scored.done
    facts = (name_record(trajectory), trajectory.is_injection_task_alone, trajectory.utility, scores.utility)
    if trajectory.is_injection_task_alone:
        return BenignTrace(*facts, (), None, False)
    truth = play_ground_truth(version, trajectory.suite, trajectory.user_task_id)
    equal = truth is not None and dump_comparable(done.after) == truth.after
    facts_of_check = (
        list(trajectory.answer),
        done.before,
        done.after,
        convert_calls(trajectory.seen_by_checks),
    )
    hits = tuple(
        name
        for name, task in scored.suite.injection_tasks.items()
        if scored.suite._check_task_result(task, *facts_of_check)
    )
    return BenignTrace(*facts, hits, None if truth is None else truth.changes, equal)


def build_solved_rows(traces: Iterable[BenignTrace]) -> tuple[SolvedRow, ...]:
    """Build one row per user task, in the order met."""
    groups = group_by(traces, _task_key)
    return tuple(SolvedRow(*key, len(group), *_count_solved(group)) for key, group in groups.items())


def _task_key(trace: BenignTrace | AttackedTrace) -> tuple[str, str]:
    return trace.case.suite, trace.case.user_task_id


def _count_solved(group: Sequence[BenignTrace]) -> tuple[int, int]:
    return sum(trace.recorded for trace in group), sum(trace.rescored for trace in group)


def build_state_equal_rows(traces: Iterable[BenignTrace]) -> tuple[StateEqualRow, ...]:
    """Failures by suite and kind of task; only suites that have any."""
    failed = [
        trace
        for trace in traces
        if trace.changes_state is not None and not (trace.recorded and trace.rescored)
    ]
    groups = group_by(failed, lambda trace: (trace.case.suite, bool(trace.changes_state)))
    return tuple(StateEqualRow(*key, *_count_failures(groups[key])) for key in sorted(groups))


def _count_failures(group: Sequence[BenignTrace]) -> tuple[int, int, int, int]:
    recorded = [trace.state_equal for trace in group if not trace.recorded]
    now = [trace.state_equal for trace in group if not trace.rescored]
    return len(recorded), sum(recorded), len(now), sum(now)


def build_destroyed_rows(traces: Iterable[AttackedTrace]) -> tuple[DestroyedRow, ...]:
    """One row per destroyed user task, by suite and number; errored records are left out."""
    groups = group_by((trace for trace in traces if trace.destroyed and not trace.errored), _task_key)
    rows = [DestroyedRow(*key, len(of), sum(trace.solved for trace in of)) for key, of in groups.items()]
    return tuple(sorted(rows, key=lambda row: (row.suite, len(row.user_task_id), row.user_task_id)))


class AnswerTrace(NamedTuple):
    """One record whose last message has an answer section."""

    case: TraceCase
    whole: bool
    """The utility as checks judge it, on the whole message."""
    section: bool
    """On the answer section alone, which is what a user sees."""


def rescore_answer(trajectory: Trajectory, version: str) -> AnswerTrace:
    """Score one record with an answer section (`final_answer`), attacked or not, both ways.

    Raises:
        Unusable: If it cannot be scored under this version.
    """
    scored = score_with_execution(trajectory, version)
    section = score_final_answer(trajectory, scored)
    if section is None:
        raise Unusable(RecordFault.CHECK_FAILED, "the check fails on the answer section")
    return AnswerTrace(name_record(trajectory), scored.scores.utility, section)


def build_answer_rows(traces: Iterable[AnswerTrace]) -> tuple[AnswerRow, ...]:
    """One row per pipeline and suite."""
    groups = group_by(traces, lambda trace: (trace.case.pipeline, trace.case.suite))
    return tuple(
        AnswerRow(
            *key,
            len(group),
            sum(trace.whole for trace in group),
            sum(trace.whole and not trace.section for trace in group),
            sum(trace.section and not trace.whole for trace in group),
        )
        for key, group in sorted(groups.items())
    )


@dataclass(frozen=True)
class TraceAudit:
    """Findings in stored runs. Counts are of records; nothing that errored or is hollow counts in a rate."""

    version: str | None
    """The version they were scored with again; None: each one's own."""
    pipelines: tuple[str, ...]
    attacked: int
    """Records with an injection task, errored ones included."""
    benign: int
    """Benign records of user tasks that could be scored again."""
    alone: int
    """Injection tasks run as if a user had asked for them."""
    exposure: tuple[ExposureRow, ...]
    asr: tuple[AsrRow, ...]
    successes_without_exposure: tuple[TraceCase, ...]
    """Targeted attacks that succeeded although no tool returned a line of the injection."""
    benign_hits: tuple[BenignHit, ...]
    never_solved: tuple[SolvedRow, ...]
    """User tasks that no benign record solved, by the files."""
    always_solved: tuple[SolvedRow, ...]
    state_equal: tuple[StateEqualRow, ...]
    errors: tuple[ErrorRow, ...]
    hollow: tuple[HollowRow, ...]
    asked_directly: tuple[DirectRow, ...]
    skipped: tuple[SkippedRecord, ...]
    """Files that are no usable record, hollow ones aside, and benign ones that could not be scored again."""
    destroyed: tuple[DestroyedRow, ...] = ()
    answer_text: tuple[AnswerRow, ...] = ()
    notes: tuple[str, ...] = ()
    """What folders' names decided about whose runs these are, one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json`; shares that are undefined are None."""
        found = asdict(self)
        for row in found["asr"]:
            row.update({key: None for key in ("asr", "asr_exposed") if math.isnan(row[key])})
        return found


def audit_traces(
    paths: Iterable[str | os.PathLike[str]], version: str | None = None, names: RunNames | None = None
) -> TraceAudit:
    """Look through stored runs.

    Args:
        paths: Folders or files of AgentDojo, of DRIFT or of ours.
        version: The benchmark's version that benign records are scored with again; None takes the one each
            names.
        names: The user's word on other people's folders.

    Raises:
        ConfigError: If a path or the version does not exist, there is no record, or a benign one names no
            version and none was given.
    """
    if version is not None:
        load_agentdojo(version)
    roots = list(paths)
    facts = _TraceFacts(version)
    stored = find_records(roots, names)
    with redirect_stdout(io.StringIO()):  # some of AgentDojo's checks print what they compare
        for record in stored:
            facts.add(record)
    if not (facts.attacked or facts.benign or facts.skipped):
        where = ", ".join(f"'{root}'" for root in roots)
        raise ConfigError(f"No stored cases in {where}. Give a folder of runs: runs=FOLDER")
    return replace(_build_trace_audit(facts), notes=stored.notes)


@dataclass
class _TraceFacts:
    """The facts kept of the records, each looked at once."""

    version: str | None
    attacked: list[AttackedTrace] = field(default_factory=list)
    benign: list[BenignTrace] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)
    answers: list[AnswerTrace] = field(default_factory=list)

    def add(self, record: Trajectory | SkippedRecord | None) -> None:
        """Look at one more."""
        if isinstance(record, SkippedRecord):
            self.skipped.append(record)
        elif record is not None and not record.is_benign:
            self.attacked.append(read_attacked_trace(record))
        elif record is not None:
            try:
                self.benign.append(rescore_benign(record, self.version or get_recorded_version(record)))
            except Unusable as fault:
                self.skipped.append(SkippedRecord(record.source, fault.obstacle, str(fault)))
        if isinstance(record, Trajectory) and find_final_answer(record) is not None:
            self._add_answer(record)

    def _add_answer(self, record: Trajectory) -> None:
        # An attacked record that cannot be scored counts elsewhere all the same; a benign one is skipped.
        with suppress(Unusable):
            self.answers.append(rescore_answer(record, self.version or get_recorded_version(record)))


def _build_trace_audit(facts: _TraceFacts) -> TraceAudit:
    attacked, benign = facts.attacked, facts.benign
    solved = build_solved_rows(trace for trace in benign if not trace.alone)
    alone = build_solved_rows(trace for trace in benign if trace.alone)
    cases = [*(trace.case for trace in attacked), *(trace.case for trace in benign)]
    return TraceAudit(
        version=facts.version,
        pipelines=tuple(sorted({case.pipeline for case in cases})),
        attacked=len(attacked),
        benign=sum(row.runs for row in solved),
        alone=sum(row.runs for row in alone),
        exposure=build_exposure_rows(attacked),
        asr=build_asr_rows(attacked),
        successes_without_exposure=tuple(
            trace.case
            for trace in attacked
            if trace.targeted and trace.success and not trace.errored and trace.exposed is False
        ),
        benign_hits=tuple(BenignHit(trace.case, task) for trace in benign for task in trace.hits),
        never_solved=tuple(row for row in solved if row.recorded == 0),
        always_solved=tuple(row for row in solved if row.recorded == row.runs),
        state_equal=build_state_equal_rows(benign),
        errors=_count_errors(attacked),
        hollow=_count_hollow(facts.skipped),
        asked_directly=tuple(DirectRow(*astuple(row)) for row in alone),
        skipped=tuple(record for record in facts.skipped if record.obstacle is not RecordFault.HOLLOW),
        destroyed=build_destroyed_rows(attacked),
        answer_text=build_answer_rows(facts.answers),
    )


def _count_errors(attacked: Iterable[AttackedTrace]) -> tuple[ErrorRow, ...]:
    groups = group_by(
        (t for t in attacked if t.errored), lambda trace: (trace.case.pipeline, trace.case.suite)
    )
    return tuple(
        ErrorRow(*key, len(group), sum(t.success for t in group)) for key, group in sorted(groups.items())
    )


def _count_hollow(skipped: Iterable[SkippedRecord]) -> tuple[HollowRow, ...]:
    hollow = (Path(record.source) for record in skipped if record.obstacle is RecordFault.HOLLOW)
    # <pipeline>/<suite>/<task>/<attack>/<injection>.json
    folders = Counter(str(path.parents[min(2, len(path.parents) - 1)]) for path in hollow)
    return tuple(HollowRow(folder, count) for folder, count in sorted(folders.items()))
