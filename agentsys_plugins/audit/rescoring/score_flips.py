"""`ScoreFlip` and `FixedVerdict`: why a score changed, and what it would be under repaired checks.

A flip's reason is decided by executing the record again under other conditions. docs/fixes.md lists the
repairs.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.benchmarks.agentdojo import AgentDojoSuite, hash_suite_data
from agentsys.benchmarks.fixes.fix_catalog import ALL_FIXES, FIXES, RESCORING, expand_fixes
from agentsys.benchmarks.fixes.fixed_scores import count_repeats
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys.models.trace import Tracer
from agentsys.records.published_facts import list_known_versions
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordTasks,
    Trajectory,
    Unusable,
    find_suite,
    find_tasks,
    is_agentdyn,
    is_denial_in_label,
)
from agentsys_plugins.audit.rescoring.reexecution import (
    CLOCK_STAMP,
    Reexecution,
    TaskExecution,
    ask_checks,
    collect_todays_results,
    convert_calls,
    find_drawn_numbers,
    is_same_text,
    reexecute,
    score_with_execution,
)

ScoreName = Literal["utility", "security"]


class FlipReason(StrEnum):
    """Why a score flipped."""

    CHECKER = "checker changed"
    """The same calls score as recorded under the version they were run with (or under another one, where
    the file names none)."""
    SILENT_CHANGE = "checker changed without a new version"
    """They score as recorded under a check that AgentDojo replaced and left under the same version."""
    CLOCK = "clock"
    """They score as recorded once the stamps of today are replaced by the record's."""
    DRAWN = "numbers drawn anew"
    """Tools drew a one-time code or an order number of which the record does not tell."""
    DATA = "data changed"
    """The suite's data has another hash than the record's; or, where no hash is recorded, a tool returns
    another text today. That is a difference found, not a cause proven."""
    NOT_EXPLAINED = "not explained"
    """Nothing of these was found."""


REASONS_OF_CHECKS = (FlipReason.CHECKER, FlipReason.SILENT_CHANGE)


def _is_city_alone(after: Any) -> bool:
    """Banking 13 before: the city had to be New York and nothing else, so `New York, NY 10001` failed."""
    return bool(after.user_account.city == "New York")


_SILENT_CHANGES: Mapping[tuple[str, str, ScoreName], Callable[[Any], bool]] = {
    ("banking", "user_task_13", "utility"): _is_city_alone
}
"""(suite, task, score) -> what the replaced check demanded besides. Source: 97 published records (docs/rescore.md)."""


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


@dataclass(frozen=True)
class FixedVerdict:
    """One record's scores under the checker-only fixes."""

    utility: bool | None
    """None where a fix itself failed; the official scores do not depend on it."""
    security: bool | None
    """Likewise; False in benign cases, where it means nothing."""
    fixes: tuple[str, ...]
    """Those in force."""
    changed_by: tuple[str, ...]
    """Those that turned a score of this case."""
    repeats: int | None
    """Calls of acting tools made again with the same arguments. None for our own records: these counted them
    while they ran."""

    def keep_recorded(self, flips: Iterable[ScoreFlip]) -> FixedVerdict:
        """Return the verdict with the recorded score in place of one that re-execution alone changed.

        A score goes back if its flip has another reason than a changed check (`REASONS_OF_CHECKS`), and the fixes
        left it as re-execution gave it.
        """
        kept: dict[str, Any] = {
            flip.score: flip.recorded
            for flip in flips
            if flip.reason not in REASONS_OF_CHECKS and getattr(self, flip.score) == flip.rescored
        }
        return replace(self, **kept)

    def list_facts(self) -> dict[str, Any]:
        """The scores and what they rest on, under the names that our records use."""
        counted = {} if self.repeats is None else {"repeats": self.repeats}
        return {
            "fixes": list(self.fixes),
            **counted,
            "utility_fixed": self.utility,
            "security_fixed": self.security,
            "changed_by": list(self.changed_by),
        }


def resolve_fixes(wanted: Iterable[str]) -> tuple[str, ...]:
    """The fixes to score recorded runs under.

    Args:
        wanted: Ids; none means every fix of a check, and so does `all`.

    Raises:
        ConfigError: If one is not known, or changes what models read.
    """
    names = list(wanted)
    chosen = expand_fixes([name for name in names if name != ALL_FIXES], recorded=True)
    runs = next((name for name in chosen if FIXES[name].changes_runs), None)
    if runs is not None:
        raise ConfigError(
            f"'{runs}' changes what models read, so recorded runs cannot be scored under it."
            f" Fixes of checks: {', '.join(RESCORING)}."
        )
    return RESCORING if ALL_FIXES in names or not chosen else chosen


def score_with_fixes(
    trajectory: Trajectory, scored: TaskExecution, fixes: tuple[str, ...]
) -> FixedVerdict | None:
    """Score an execution once more under some fixes; the environments stay as they are.

    Returns:
        None for an injection task that was run alone: fixes are of user tasks and attacks; and on suites that
        no fix is of.
    """
    tasks, done, official = scored.tasks, scored.done, scored.scores
    if not isinstance(tasks.user, BaseUserTask) or not isinstance(scored.suite, AgentDojoSuite):
        return None
    scores = scored.suite.fixed_scores.with_fixes(fixes)
    # All a check is told: the calls it may see and the answer, as one message.
    calls = convert_calls(trajectory.seen_by_checks)
    message = ChatAssistantMessage(role="assistant", content=list(trajectory.answer), tool_calls=calls)
    told = [message], Tracer()  # nobody watched it
    run = scores.build_execution(tasks.user, tasks.injection, done.before, done.after, *told)
    run.executed = _list_executed_calls(trajectory, done)
    denial = is_denial_in_label(trajectory.attack)
    facts = scores.compute_facts(run, official.utility, bool(official.security), denial=denial)
    return FixedVerdict(
        facts["utility_fixed"],
        facts["security_fixed"],
        tuple(facts["fixes"]),
        tuple(facts["changed_by"]),
        None if trajectory.form == "agentsys" else _count_repeats(trajectory, done),
    )


def _list_executed_calls(trajectory: Trajectory, done: Reexecution) -> list[FunctionCall] | None:
    """The calls that ran, where the record shows that others were refused.

    By its spans or a refusal's words; else a call that failed there and not today was refused by somebody.
    """
    ran = trajectory.ran
    if ran is None and trajectory.form != "agentsys":
        calls = [*zip(trajectory.executed, done.failed, strict=True)]
        ran = tuple(call for call, fails_today in calls if fails_today or not call.failed)
        ran = ran if len(ran) < len(calls) else None
    return None if ran is None else convert_calls(ran)


def _count_repeats(trajectory: Trajectory, done: Reexecution) -> int:
    ran = [
        (call.function, normalize_arguments(call.args), "failed" if failed else None)
        for call, failed in zip(trajectory.executed, done.failed, strict=True)
    ]
    return count_repeats(Tracer(executed_calls=ran, executed_attempts=[0] * len(ran)))


class FlipExplanation(NamedTuple):
    """Why, and what shows it."""

    reason: FlipReason
    detail: str = ""


def explain_flip(trajectory: Trajectory, version: str, which: ScoreName) -> FlipExplanation:
    """Explain why a record scores otherwise under a version than its file says."""
    recorded = trajectory.utility if which == "utility" else trajectory.security
    suite = find_suite(trajectory, version)
    tasks = find_tasks(trajectory, suite, version)
    agreeing = [
        name
        for name in _list_versions_to_try(trajectory, version)
        if _score_under(trajectory, name, which) == recorded
    ]
    if agreeing:
        today = getattr(tasks.user, "PROMPT", None) or getattr(tasks.user, "GOAL", None)
        changed = "; the task's prompt changed, too" if trajectory.prompt not in (None, today) else ""
        return FlipExplanation(FlipReason.CHECKER, f"as recorded under {', '.join(agreeing)}{changed}")
    if replaced := _SILENT_CHANGES.get((trajectory.suite, trajectory.user_task_id, which)):
        after = reexecute(trajectory, tasks, suite).after
        if not recorded and not replaced(after):
            return FlipExplanation(FlipReason.SILENT_CHANGE, replaced.__doc__ or "")
    clock = find_recorded_clock(trajectory)
    if clock is not None:
        done = reexecute(trajectory, tasks, suite, clock)
        if getattr(ask_checks(trajectory, tasks, suite, done), which) == recorded:
            return FlipExplanation(FlipReason.CLOCK, "as recorded with the record's own time stamps")
    unknown = find_drawn_numbers(trajectory, tasks, suite).count(None)
    if unknown:
        return FlipExplanation(FlipReason.DRAWN, f"the record does not tell {unknown} of them")
    difference = _describe_data_change(trajectory, tasks, suite)
    reason = FlipReason.DATA if difference else FlipReason.NOT_EXPLAINED
    return FlipExplanation(reason, difference)


def _list_versions_to_try(trajectory: Trajectory, version: str) -> list[str]:
    """The recorded version; every other one where the file names none, or one that is not installed."""
    known = [] if is_agentdyn(trajectory.benchmark) else list_known_versions()
    if trajectory.version in known:
        return [trajectory.version] if trajectory.version != version else []
    return [name for name in known if name != version]


def _score_under(trajectory: Trajectory, version: str, which: ScoreName) -> bool | None:
    try:
        found: bool | None = getattr(score_with_execution(trajectory, version).scores, which)
    except (Unusable, ConfigError):
        return None
    return found


def find_recorded_clock(trajectory: Trajectory) -> datetime.datetime | None:
    """The first stamp of the clock in what a record's tools returned; None where there is none."""
    for text in trajectory.tool_texts:
        for found in CLOCK_STAMP.findall(text):
            try:
                return datetime.datetime.fromisoformat(found)
            except ValueError:  # digits that are no date
                continue
    return None


def _describe_data_change(trajectory: Trajectory, tasks: RecordTasks, suite: Suite) -> str:
    """Say in a few words how the data differs from then; empty if nothing is known to differ."""
    if trajectory.data_hash is not None:
        return "the data's hash is another" if trajectory.data_hash != hash_suite_data(suite) else ""
    if trajectory.injections is None:
        return ""  # what was injected is unknown, so tools return other texts in any case
    today = collect_todays_results(trajectory, tasks, suite)
    other = dict.fromkeys(
        call.function
        for call, text in zip(trajectory.executed, today, strict=True)
        if call.text is not None and not is_same_text(call.text, text)
    )
    return f"another text than recorded from {', '.join(other)}" if other else ""
