"""`fixed_verdict`: what a re-executed record would score under repaired checks (docs/fixes.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agentdojo.base_tasks import BaseUserTask
from agentdojo.types import ChatAssistantMessage

from agentsys.audit.rescoring.reexecute import Reexecution, as_calls
from agentsys.audit.rescoring.score import Scores
from agentsys.audit.rescoring.tasks import Tasks, denies_service
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.benchmarks.fixes.catalog import ALL, CHECKER_ONLY, FIXES, expanded
from agentsys.benchmarks.fixes.fixed_scores import FixedScores
from agentsys.benchmarks.fixes.repeats import repeats
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.tools import as_executed
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


def fixes_of_checks(wanted: Iterable[str]) -> tuple[str, ...]:
    """The fixes to score recorded runs under.

    Args:
        wanted: Ids; none means every fix of a check, and so does `all`.

    Raises:
        ConfigError: If one is not known, or changes what models read.
    """
    names = list(wanted)
    chosen = expanded([name for name in names if name != ALL])
    runs = next((name for name in chosen if FIXES[name].changes_runs), None)
    if runs is not None:
        raise ConfigError(
            f"'{runs}' changes what models read, so recorded runs cannot be scored under it."
            f" Fixes of checks: {', '.join(CHECKER_ONLY)}."
        )
    return CHECKER_ONLY if ALL in names or not chosen else chosen


def fixed_verdict(
    trajectory: Trajectory,
    tasks: Tasks,
    suite: Suite,
    done: Reexecution,
    official: Scores,
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
    run = scores.execution(tasks.user, tasks.injection, (done.before, done.after), [_last(trajectory)])
    facts = scores.facts(
        run, official.utility, bool(official.security), denial=denies_service(trajectory.attack)
    )
    return FixedVerdict(
        facts["utility_fixed"],
        facts["security_fixed"],
        tuple(facts["fixes"]),
        tuple(facts["changed_by"]),
        None if trajectory.form == "agentsys" else _repeats(trajectory, done),
    )


def _last(trajectory: Trajectory) -> ChatAssistantMessage:
    """All a check is told: the calls it may see and the answer, as one message."""
    calls = as_calls(trajectory.seen_by_checks)
    return ChatAssistantMessage(role="assistant", content=list(trajectory.answer), tool_calls=calls)


def _repeats(trajectory: Trajectory, done: Reexecution) -> int:
    ran = [
        (call.function, as_executed(call.args), "failed" if failed else None)
        for call, failed in zip(trajectory.executed, done.failed, strict=True)
    ]
    return repeats(Tracer(executed=ran, executed_in=[0] * len(ran)))
