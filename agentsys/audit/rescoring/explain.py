"""`ScoreFlip` and its reason: decided by doing the record again under other conditions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from agentsys.audit.rescoring.reexecute import find_drawn_numbers, reexecute, collect_todays_results, is_same_text, find_stamps
from agentsys.audit.rescoring.score import ask_checks, score_record
from agentsys.audit.rescoring.tasks import is_agentdyn, find_suite, find_tasks, list_versions
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import Unusable
from agentsys.benchmarks.data_hash import hash_suite_data
from agentsys.errors import ConfigError

ScoreName = Literal["utility", "security"]


class FlipReason(StrEnum):
    """Why a score flipped."""

    CHECKER = "checker changed"
    """The same calls score as recorded under the version they were run with (or under another one, where
    the file names none)."""
    CLOCK = "clock"
    """They score as recorded once the stamps of today are replaced by the record's."""
    DRAWN = "numbers drawn anew"
    """Tools drew a one-time code or an order number of which the record does not tell."""
    DATA = "data changed"
    """The suite's data has another hash than the record's; or, where no hash is recorded, a tool returns
    another text today. That is a difference found, not a cause proven."""
    NOT_EXPLAINED = "not explained"
    """Nothing of these was found."""


@dataclass(frozen=True)
class ScoreFlip:
    """One score of one record."""

    trajectory: Trajectory
    version: str
    """The version it was scored with now."""
    score: ScoreName
    recorded: bool
    rescored: bool
    reason: FlipReason
    detail: str
    """The evidence in a few words; empty where there is none."""


class FlipExplanation(NamedTuple):
    """Why, and what shows it."""

    reason: FlipReason
    detail: str = ""


def explain_flip(trajectory: Trajectory, version: str, which: ScoreName) -> FlipExplanation:
    """Why a record scores otherwise under a version than its file says."""
    recorded = trajectory.utility if which == "utility" else trajectory.security
    agreeing = [
        name for name in _list_versions_to_try(trajectory, version) if _score_under(trajectory, name, which) == recorded
    ]
    if agreeing:
        changed = _describe_prompt_change(trajectory, version)
        return FlipExplanation(FlipReason.CHECKER, f"as recorded under {', '.join(agreeing)}{changed}")
    if _score_with_recorded_clock(trajectory, version, which) == recorded:
        return FlipExplanation(FlipReason.CLOCK, "as recorded with the record's own time stamps")
    suite = find_suite(trajectory, version)
    unknown = find_drawn_numbers(trajectory, find_tasks(trajectory, suite, version), suite).count(None)
    if unknown:
        return FlipExplanation(FlipReason.DRAWN, f"the record does not tell {unknown} of them")
    difference = _describe_data_change(trajectory, version)
    return FlipExplanation(FlipReason.DATA, difference) if difference else FlipExplanation(FlipReason.NOT_EXPLAINED)


def _list_versions_to_try(trajectory: Trajectory, version: str) -> list[str]:
    """The recorded version; every other one where the file names none, or one that is not installed."""
    known = [] if is_agentdyn(trajectory.benchmark) else list_versions()
    if trajectory.version in known:
        return [trajectory.version] if trajectory.version != version else []
    return [name for name in known if name != version]


def _score_under(trajectory: Trajectory, version: str, which: ScoreName) -> bool | None:
    try:
        found: bool | None = getattr(score_record(trajectory, version), which)
    except (Unusable, ConfigError):
        return None
    return found


def _describe_prompt_change(trajectory: Trajectory, version: str) -> str:
    tasks = find_tasks(trajectory, find_suite(trajectory, version), version)
    today = getattr(tasks.user, "PROMPT", None) or getattr(tasks.user, "GOAL", None)
    return "; the task's prompt changed, too" if trajectory.prompt not in (None, today) else ""


def _score_with_recorded_clock(trajectory: Trajectory, version: str, which: ScoreName) -> bool | None:
    now = find_recorded_clock(trajectory)
    if now is None:
        return None
    suite = find_suite(trajectory, version)
    tasks = find_tasks(trajectory, suite, version)
    done = reexecute(trajectory, tasks, suite, now)
    found: bool | None = getattr(ask_checks(trajectory, tasks, suite, done), which)
    return found


def find_recorded_clock(trajectory: Trajectory) -> datetime.datetime | None:
    """The first stamp of the clock in what a record's tools returned; None where there is none."""
    for text in trajectory.tool_texts:
        for found in find_stamps(text):
            try:
                return datetime.datetime.fromisoformat(found)
            except ValueError:  # digits that are no date
                continue
    return None


def _describe_data_change(trajectory: Trajectory, version: str) -> str:
    """Say in a few words what of the data is not as it was; empty if nothing is known to differ."""
    suite = find_suite(trajectory, version)
    if trajectory.data_hash is not None:
        return "the data's hash is another" if trajectory.data_hash != hash_suite_data(suite) else ""
    if trajectory.injections is None:
        return ""  # what was injected is unknown, so tools return other texts in any case
    today = collect_todays_results(trajectory, find_tasks(trajectory, suite, version), suite)
    other = dict.fromkeys(_list_differing_results(trajectory, today))
    return f"another text than recorded from {', '.join(other)}" if other else ""


def _list_differing_results(trajectory: Trajectory, today: list[str]) -> Iterator[str]:
    for call, text in zip(trajectory.executed, today, strict=True):
        if call.text is not None and not is_same_text(call.text, text):
            yield call.function
