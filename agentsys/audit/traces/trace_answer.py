"""What checks read beside the answer: utilities that rest on the other sections of a last message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agentsys.audit.traces.trace_findings import AnswerRow, TraceCase, named
from agentsys.rescoring.score import score_and_execution
from agentsys.rescoring.tasks import suite_for, tasks_for
from agentsys.rescoring.trajectories.final_answer import utility_of_final_answer
from agentsys.rescoring.trajectories.trajectory import Trajectory
from agentsys.rescoring.trajectories.unusable import Obstacle, Unusable


class AnswerTrace(NamedTuple):
    """One record whose last message has an answer section."""

    case: TraceCase
    whole: bool
    """The utility as checks judge it, on the whole message."""
    section: bool
    """On the answer section alone, which is what a user sees."""


def answer_trace(trajectory: Trajectory, version: str) -> AnswerTrace:
    """Score one record both ways.

    Args:
        trajectory: Attacked or not; with an answer section (`final_answer`).
        version: The benchmark's version.

    Raises:
        Unusable: If it cannot be scored under this version.
    """
    scores, done = score_and_execution(trajectory, version)
    suite = suite_for(trajectory, version)
    section = utility_of_final_answer(trajectory, tasks_for(trajectory, suite, version), suite, done)
    if section is None:
        raise Unusable(Obstacle.CHECK_FAILED, "the check fails on the answer section")
    return AnswerTrace(named(trajectory), scores.utility, section)


def answer_rows(traces: Iterable[AnswerTrace]) -> tuple[AnswerRow, ...]:
    """One row per pipeline and suite."""
    groups: dict[tuple[str, str], list[AnswerTrace]] = {}
    for trace in traces:
        groups.setdefault((trace.case.pipeline, trace.case.suite), []).append(trace)
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
