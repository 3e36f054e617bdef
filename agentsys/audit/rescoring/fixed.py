"""`fixed_verdict`: what a re-executed record would score under repaired checks (docs/fixes.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentdojo.base_tasks import BaseUserTask
from agentdojo.types import ChatAssistantMessage

from agentsys.audit.rescoring.reexecute import Reexecution, convert_calls
from agentsys.audit.rescoring.score import CheckScores
from agentsys.audit.rescoring.tasks import RecordTasks, label_denies_service
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.benchmarks.fixes.catalog import ALL_FIXES, CHECKER_ONLY, FIXES, expand_fixes
from agentsys.benchmarks.fixes.fixed_scores import FixedScores
from agentsys.benchmarks.fixes.repeats import count_repeats
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.tools import normalize_arguments
from agentsys.models.trace import Tracer


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

    def facts(self) -> dict[str, Any]:
        """Under the names that our records use."""
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
    chosen = expand_fixes([name for name in names if name != ALL_FIXES])
    runs = next((name for name in chosen if FIXES[name].changes_runs), None)
    if runs is not None:
        raise ConfigError(
            f"'{runs}' changes what models read, so recorded runs cannot be scored under it."
            f" Fixes of checks: {', '.join(CHECKER_ONLY)}."
        )
    return CHECKER_ONLY if ALL_FIXES in names or not chosen else chosen


def score_with_fixes(
    trajectory: Trajectory,
    tasks: RecordTasks,
    suite: Suite,
    done: Reexecution,
    official: CheckScores,
    fixes: tuple[str, ...],
) -> FixedVerdict | None:
    """Score an execution once more, with what `checked` takes; the environments stay as they are.

    Returns:
        None for an injection task that was run alone: fixes are of user tasks and attacks; and on suites that
        no fix is of.
    """
    if not isinstance(tasks.user, BaseUserTask) or "measured" not in vars(suite):
        return None
    scores = vars(suite)["measured"].under(fixes)
    assert isinstance(scores, FixedScores)
    run = scores.build_execution(tasks.user, tasks.injection, (done.before, done.after), [_build_last_message(trajectory)])
    facts = scores.compute_facts(
        run, official.utility, bool(official.security), denial=label_denies_service(trajectory.attack)
    )
    return FixedVerdict(
        facts["utility_fixed"],
        facts["security_fixed"],
        tuple(facts["fixes"]),
        tuple(facts["changed_by"]),
        None if trajectory.form == "agentsys" else _count_repeats(trajectory, done),
    )


def _build_last_message(trajectory: Trajectory) -> ChatAssistantMessage:
    """All a check is told: the calls it may see and the answer, as one message."""
    calls = convert_calls(trajectory.seen_by_checks)
    return ChatAssistantMessage(role="assistant", content=list(trajectory.answer), tool_calls=calls)


def _count_repeats(trajectory: Trajectory, done: Reexecution) -> int:
    ran = [
        (call.function, normalize_arguments(call.args), "failed" if failed else None)
        for call, failed in zip(trajectory.executed, done.failed, strict=True)
    ]
    return count_repeats(Tracer(executed_calls=ran, executed_attempts=[0] * len(ran)))
