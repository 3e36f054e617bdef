"""Findings in records that are done again: benign ones, destroyed user tasks, answer sections.

A state-equal failure is a user task that is scored false although the environment is exactly the one that its
ground truth leads to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from agentdojo.functions_runtime import TaskEnvironment

from agentsys.audit.rescoring.reexecute import Reexecution, convert_calls
from agentsys.audit.rescoring.score import score_with_execution
from agentsys.audit.rescoring.tasks import load_agentdojo, find_suite, find_tasks
from agentsys.audit.rescoring.trajectories.final_answer import score_final_answer
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.audit.static.audited_task import GroundTruthFailed, CallPlayer
from agentsys.audit.traces.exposure import AttackedTrace
from agentsys.audit.traces.rows import (
    AnswerRow,
    BenignHit,
    DestroyedRow,
    DirectRow,
    SolvedRow,
    StateEqualRow,
    TraceCase,
    name_record,
)
from agentsys.grouping import group_by

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
    scores, done = score_with_execution(trajectory, version)
    facts = (name_record(trajectory), trajectory.is_injection_task_alone, trajectory.utility, scores.utility)
    if trajectory.is_injection_task_alone:
        return BenignTrace(*facts, (), None, False)
    truth = play_ground_truth(version, trajectory.suite, trajectory.user_task_id)
    equal = truth is not None and dump_comparable(done.after) == truth.after
    hits = tuple(_find_hits(trajectory, version, done))
    return BenignTrace(*facts, hits, None if truth is None else truth.changes, equal)


def _find_hits(trajectory: Trajectory, version: str, done: Reexecution) -> Iterator[str]:
    suite = find_suite(trajectory, version)
    facts = list(trajectory.answer), done.before, done.after, convert_calls(trajectory.seen_by_checks)
    for name, task in suite.injection_tasks.items():
        if suite._check_task_result(task, *facts):
            yield name


def list_benign_hits(traces: Iterable[BenignTrace]) -> tuple[BenignHit, ...]:
    """Every (record, attack check that passes)."""
    return tuple(BenignHit(trace.case, task) for trace in traces for task in trace.hits)


def build_solved_rows(traces: Iterable[BenignTrace]) -> tuple[SolvedRow, ...]:
    """One row per user task, in the order met."""
    groups = group_by((trace for trace in traces if not trace.alone), _task_key)
    return tuple(SolvedRow(*key, len(group), *_count_solved(group)) for key, group in groups.items())


def build_direct_rows(traces: Iterable[BenignTrace]) -> tuple[DirectRow, ...]:
    """One row per injection task that was run alone, in the order met."""
    groups = group_by((trace for trace in traces if trace.alone), _task_key)
    return tuple(DirectRow(*key, len(group), *_count_solved(group)) for key, group in groups.items())


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
    scores, done = score_with_execution(trajectory, version)
    suite = find_suite(trajectory, version)
    section = score_final_answer(trajectory, find_tasks(trajectory, suite, version), suite, done)
    if section is None:
        raise Unusable(RecordFault.CHECK_FAILED, "the check fails on the answer section")
    return AnswerTrace(name_record(trajectory), scores.utility, section)


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
