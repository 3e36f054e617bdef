"""`ScoreFlip` and its reason: decided by doing the record again under other conditions."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from agentsys.audit.rescoring.reexecute import drawn_then, reexecute, retold, same_text, stamps
from agentsys.audit.rescoring.score import checked, score
from agentsys.audit.rescoring.tasks import is_agentdyn, suite_for, tasks_for, versions
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import Unusable
from agentsys.benchmarks.data_hash import data_hash
from agentsys.errors import ConfigError

Score = Literal["utility", "security"]


class Reason(StrEnum):
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
    score: Score
    recorded: bool
    rescored: bool
    reason: Reason
    detail: str
    """The evidence in a few words; empty where there is none."""


class Explanation(NamedTuple):
    """Why, and what shows it."""

    reason: Reason
    detail: str = ""


def explain(trajectory: Trajectory, version: str, which: Score) -> Explanation:
    """Why a record scores otherwise under a version than its file says."""
    recorded = trajectory.utility if which == "utility" else trajectory.security
    agreeing = [
        name for name in _versions_to_try(trajectory, version) if _scored(trajectory, name, which) == recorded
    ]
    if agreeing:
        changed = _prompt_changed(trajectory, version)
        return Explanation(Reason.CHECKER, f"as recorded under {', '.join(agreeing)}{changed}")
    if _with_the_records_clock(trajectory, version, which) == recorded:
        return Explanation(Reason.CLOCK, "as recorded with the record's own time stamps")
    suite = suite_for(trajectory, version)
    unknown = drawn_then(trajectory, tasks_for(trajectory, suite, version), suite).count(None)
    if unknown:
        return Explanation(Reason.DRAWN, f"the record does not tell {unknown} of them")
    difference = _difference_in_data(trajectory, version)
    return Explanation(Reason.DATA, difference) if difference else Explanation(Reason.NOT_EXPLAINED)


def _versions_to_try(trajectory: Trajectory, version: str) -> list[str]:
    """The recorded version; every other one where the file names none, or one that is not installed."""
    known = [] if is_agentdyn(trajectory.benchmark) else versions()
    if trajectory.version in known:
        return [trajectory.version] if trajectory.version != version else []
    return [name for name in known if name != version]


def _scored(trajectory: Trajectory, version: str, which: Score) -> bool | None:
    try:
        found: bool | None = getattr(score(trajectory, version), which)
    except (Unusable, ConfigError):
        return None
    return found


def _prompt_changed(trajectory: Trajectory, version: str) -> str:
    tasks = tasks_for(trajectory, suite_for(trajectory, version), version)
    today = getattr(tasks.user, "PROMPT", None) or getattr(tasks.user, "GOAL", None)
    return "; the task's prompt changed, too" if trajectory.prompt not in (None, today) else ""


def _with_the_records_clock(trajectory: Trajectory, version: str, which: Score) -> bool | None:
    now = recorded_now(trajectory)
    if now is None:
        return None
    suite = suite_for(trajectory, version)
    tasks = tasks_for(trajectory, suite, version)
    done = reexecute(trajectory, tasks, suite, now)
    found: bool | None = getattr(checked(trajectory, tasks, suite, done), which)
    return found


def recorded_now(trajectory: Trajectory) -> datetime.datetime | None:
    """The first stamp of the clock in what a record's tools returned; None where there is none."""
    for text in trajectory.tool_texts:
        for found in stamps(text):
            try:
                return datetime.datetime.fromisoformat(found)
            except ValueError:  # digits that are no date
                continue
    return None


def _difference_in_data(trajectory: Trajectory, version: str) -> str:
    """Say in a few words what of the data is not as it was; empty if nothing is known to differ."""
    suite = suite_for(trajectory, version)
    if trajectory.data_hash is not None:
        return "the data's hash is another" if trajectory.data_hash != data_hash(suite) else ""
    if trajectory.injections is None:
        return ""  # what was injected is unknown, so tools return other texts in any case
    today = retold(trajectory, tasks_for(trajectory, suite, version), suite)
    other = dict.fromkeys(_differing(trajectory, today))
    return f"another text than recorded from {', '.join(other)}" if other else ""


def _differing(trajectory: Trajectory, today: list[str]) -> Iterator[str]:
    for call, text in zip(trajectory.executed, today, strict=True):
        if call.text is not None and not same_text(call.text, text):
            yield call.function
