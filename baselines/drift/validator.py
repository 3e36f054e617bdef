"""The dynamic validator: reads pass, a judge sees unplanned actions, arguments must fit the checklist."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatModel
from agentsys.models.prompted_tools import text_between_tags, wrap_in_tag
from agentsys.models.trace import span
from baselines.drift.asking import ask_role
from baselines.drift.checklist import compare_with_checklist, format_checklist
from baselines.drift.fixes import DriftFix
from baselines.drift.permission import ToolPermission
from baselines.drift.progress import PlanProgress, follow_plan
from baselines.drift.prompts import JUDGE
from baselines.drift.refusal import DriftRefusal, calls_as_data, calls_as_text
from baselines.drift.settings import DriftSettings

JUDGE_ROLE = "drift_judge"
VALIDATOR_SPAN = "drift_validator"
FIRST, CURRENT, PROPOSED, CALLS, QUERY = (
    "first_plan",
    "current_plan",
    "proposed_sequence",
    "proposed_calls",
    "user_query",
)
"""Tags of the judge's question."""
_RESULT = "judge_result"


@dataclass(frozen=True)
class ValidatedBatch:
    """Outcome of the validator for one batch."""

    progress: PlanProgress
    """What the next batch is checked against."""
    refusal: DriftRefusal | None


@dataclass(frozen=True)
class Validator:
    """Checks the batches of one task."""

    model: ChatModel
    settings: DriftSettings
    query: str
    permissions: Mapping[str, ToolPermission]
    first_plan: tuple[str, ...]

    def check_batch(self, progress: PlanProgress, batch: Sequence[FunctionCall]) -> ValidatedBatch:
        """Check one batch of calls, which is accepted or refused as a whole.

        Raises:
            ModelError: If a model that was asked gave no reply.
        """
        with span(VALIDATOR_SPAN) as opened:
            walk = _BatchCheck(self, tuple(batch))
            checked = walk.run(progress)
            opened.decision = {"calls": calls_as_data(batch), "unplanned": walk.deviations}
            if batch:
                opened.decision["allow"] = checked.refusal is None
            if checked.refusal is not None:
                opened.decision["refusal"] = checked.refusal.decision_data()
        return checked


@dataclass
class _BatchCheck:
    """One check, and what it met on the way."""

    validator: Validator
    batch: tuple[FunctionCall, ...]
    deviations: list[dict[str, Any]] = field(default_factory=list)

    def run(self, before: PlanProgress) -> ValidatedBatch:
        mended = self.validator.settings.fixes
        progress, refusal = self._check_plan(before)
        if refusal is None:
            progress, refusal = self._check_checklist(progress)
        kept = before if refusal is not None and DriftFix.COMMIT_ACCEPTED in mended else progress
        return ValidatedBatch(kept, refusal)

    def _check_plan(self, before: PlanProgress) -> tuple[PlanProgress, DriftRefusal | None]:
        names = [call.function for call in self.batch]
        settings = self.validator.settings
        if settings.dynamic_validation:
            followed = follow_plan(before, names, self._may_extend)
            return followed.progress, followed.refusal
        # Without the check of the plan the checklist alone holds calls to their places. The reference does
        # not count them then, and so compares every batch with the last entry.
        counted = DriftFix.COUNT_FROM_BATCH in settings.fixes
        return replace(before, achieved=(*before.achieved, *names)) if counted else before, None

    def _check_checklist(self, progress: PlanProgress) -> tuple[PlanProgress, DriftRefusal | None]:
        settings = self.validator.settings
        if DriftFix.FORMAT_ONCE not in settings.fixes:
            model, query = self.validator.model, self.validator.query
            text = format_checklist(model, query, progress.checklist, settings.format_attempts)
            progress = replace(progress, checklist=text or "")
        counted_back = len(self.batch) if DriftFix.COUNT_FROM_BATCH in settings.fixes else 1
        start = len(progress.achieved) - counted_back
        every = DriftFix.CHECK_EVERY_CALL in settings.fixes
        return progress, compare_with_checklist(progress.checklist, start, self.batch, every_call=every)

    def _may_extend(self, name: str, extended: tuple[str, ...], plan: tuple[str, ...]) -> bool:
        permission = self.validator.permissions.get(name)
        met = {"name": name, "permission": permission.value if permission else None}
        self.deviations.append(met)
        if permission is None:
            allowed = DriftFix.REFUSE_UNKNOWN_TOOLS not in self.validator.settings.fixes
        elif permission is ToolPermission.READ:
            allowed = True
        else:
            met["judge"] = reply = ask_role(self.validator.model, JUDGE_ROLE, JUDGE, self._write_judge_question(extended, plan))
            allowed = is_yes_verdict(reply, strictly=DriftFix.READ_VERDICTS_STRICTLY in self.validator.settings.fixes)
        return allowed

    def _write_judge_question(self, extended: tuple[str, ...], plan: tuple[str, ...]) -> str:
        settings = self.validator.settings
        parts = {CURRENT: str(list(plan)), PROPOSED: str(list(extended))}
        if DriftFix.SHOW_FIRST_PLAN in settings.fixes:
            parts = {FIRST: str(list(self.validator.first_plan)), **parts}
        if settings.judge_arguments:
            parts[CALLS] = calls_as_text(self.batch)
        return "\n".join(
            wrap_in_tag(tag, body) for tag, body in {**parts, QUERY: self.validator.query}.items()
        )


def is_yes_verdict(reply: str, *, strictly: bool) -> bool:
    """Whether a judge lets a call pass.

    Args:
        reply: The judge's words.
        strictly: The result section must say Yes and nothing else. Otherwise "Yes" or "YES" may stand
            anywhere, as in the reference implementation.
    """
    if not strictly:
        return "Yes" in reply or "YES" in reply
    verdict = text_between_tags(reply, _RESULT)
    return verdict is not None and re.fullmatch(r"\W*yes\W*", verdict, re.IGNORECASE) is not None
