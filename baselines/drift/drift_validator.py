"""`Validator`: compares each batch of calls with the plan, and their arguments with the checklist."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from json_repair import repair_json

from agentsys.base.json_values import read_json_data
from agentsys.base.python_parser import literal_eval
from agentsys.models.chat import ChatModel
from agentsys.models.prompted_tools import find_text_between_tags, wrap_in_tag
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import span
from baselines.drift.drift_plan import (
    DriftRefusal,
    DriftSettings,
    PlanCheck,
    PlanProgress,
    ToolPermission,
    build_call_data,
    follow_plan,
    format_calls,
)
from baselines.drift.prompts import FORMATTER, JUDGE, REFUSED_ARGUMENTS

FORMATTER_ROLE = "drift_formatter"
NAME, REQUIRED, CONDITIONS = "name", "required parameters", "conditions"
"""Keys of an entry."""
_TEMPLATE = re.compile(r"\{.*\}", re.DOTALL)
"""A value that is to be filled in later."""
_OPEN = {"none", "null"}  # `json_repair` reads Python's None as a text, and models write "null" in quotes.


def format_checklist(model: ChatModel, query: str, checklist: str, settings: DriftSettings) -> str | None:
    """Have the formatter write the checklist, repaired to be JSON; None if no attempt gives any."""
    question = f"{wrap_in_tag('user_query', query)}\n{wrap_in_tag('parameter_checklist', checklist)}"
    with span(FORMATTER_ROLE) as opened:
        # Reference: asked for again in the same words.
        answer = FORMATTER_CONTRACT.ask(model, question, settings.format_attempts - 1, repeat=settings.compat)
        opened.decision = {
            "attempts": len(answer.replies),
            "checklist": answer.value,
            # What json_repair makes of a text that is no JSON may be cut (50% is 50 then), and is judged all the same.
            "repaired": answer.value is not None and read_json_data(answer.words) is None,
            "compat": settings.compat,
        }
    return answer.value


def repair_json_text(text: str) -> str | None:
    """Find the JSON in a text, repaired if it is nearly JSON; None if there is none."""
    try:
        mended = repair_short_json(text)
        json.loads(mended)
    except (ValueError, RecursionError):
        return None
    return mended


FORMATTER_CONTRACT = ReplyContract(FORMATTER_ROLE, *FORMATTER, repair_json_text)
"""The formatter's answer."""


def read_entries(text: str) -> list[Any] | None:
    """Read the entries of a checklist that is JSON, a Python literal, or nearly JSON; None if no list."""
    for read in (json.loads, literal_eval, lambda raw: json.loads(repair_short_json(raw))):
        try:
            # Written and read again: a literal may hold what JSON does not know.
            entries = json.loads(json.dumps(read(text.strip()), default=str))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(entries, list):
            return entries
    return None


_LONGEST_MENDED = 6_000
"""Characters of a text that is mended: json_repair may take quadratic time. A checklist has a thousand or two."""


def repair_short_json(text: str) -> str:
    """Repair a text with `json_repair`.

    Raises:
        ValueError: If it is too long, or breaks json_repair.
    """
    if len(text) > _LONGEST_MENDED:
        raise ValueError(f"{len(text)} characters are too many to mend")
    try:
        return repair_json(text)
    except AssertionError:  # json-repair 0.55.1: a fence inside a string that never ends
        raise ValueError("json_repair cannot read it") from None


def align_checklist(checklist: str, plan: Sequence[str]) -> str:
    """Write the checklist as JSON with one entry for each planned call, in the plan's order.

    A call takes the entry at its own place if that bears its name, or the first unused one that does;
    otherwise, and where the entry is not one, it gets an entry that asks nothing.
    """
    unused = {i: entry for i, raw in enumerate(read_entries(checklist) or []) if (entry := _read_entry(raw))}
    aligned = []
    for index, name in enumerate(plan):
        same = [i for i, entry in unused.items() if entry[NAME] == name]
        blank = {NAME: name, REQUIRED: None, CONDITIONS: None}
        aligned.append(unused.pop(index if index in same else same[0]) if same else blank)
    return json.dumps(aligned, default=str)


def _read_entry(raw: Any) -> dict[str, Any] | None:
    """Read an entry, its open values as null; None if it is no entry."""
    if not isinstance(raw, dict) or not isinstance(raw.get(NAME), str):
        return None
    required = raw.get(REQUIRED)
    values = (
        {
            str(key): None if str(value).strip().casefold() in _OPEN else value
            for key, value in required.items()
        }
        if isinstance(required, dict)
        else None
    )
    return {NAME: raw[NAME], REQUIRED: values or None, CONDITIONS: raw.get(CONDITIONS)}


def compare_with_checklist(
    checklist: str, start: int, batch: Sequence[FunctionCall], *, compat: bool
) -> DriftRefusal | None:
    """Check a batch against the checklist from entry `start` on; None if it agrees.

    A negative `start` counts from the end. Calls beyond the checklist pass, and so does everything where the
    checklist cannot be read: it says what a planner expected, not what is allowed. With `compat`, as in the
    reference, the calls behind one without required values pass, too.
    """
    try:
        entries = json.loads(checklist)
    except (ValueError, RecursionError):
        return None
    rest = entries[start:] if isinstance(entries, list) else []
    for position, (entry, call) in enumerate(zip(rest, batch, strict=False)):
        if not isinstance(entry, Mapping) or NAME not in entry or REQUIRED not in entry:
            return None
        required = entry[REQUIRED]
        if entry[NAME] != call.function:
            reason = f"the call in place {position + 1} is {call.function}, the checklist has {entry[NAME]}."
            fault: tuple[str, str] | None = ("name", reason)
        elif isinstance(required, Mapping) or (required is None and not compat):
            fault = _find_mismatch(required or {}, call)
        else:
            return None
        if fault is not None:
            facts = {"cause": fault[0], "place": position, "reason": fault[1], "checklist": checklist}
            return DriftRefusal("checklist", REFUSED_ARGUMENTS, facts, batch)
    return None


def _find_mismatch(required: Mapping[str, Any], call: FunctionCall) -> tuple[str, str] | None:
    """Cause and reason why a call's arguments do not agree."""
    for key, value in required.items():
        expected = str(value)
        if value is None or _TEMPLATE.search(expected):
            continue
        if key not in call.args:
            return "missing", f"{call.function} lacks the argument {key}."
        proposed = str(call.args[key])
        if expected not in proposed and proposed not in expected:
            return "value", f"{key} of {call.function} is {proposed}, the checklist has {expected}."
    return None


JUDGE_ROLE = "drift_judge"
VALIDATOR_SPAN = "drift_validator"
FIRST, CURRENT, PROPOSED = "first_plan", "current_plan", "proposed_sequence"
CALLS, QUERY = "proposed_calls", "user_query"
"""Tags of the judge's question."""
_RESULT = "judge_result"
_VERDICT = re.compile(r"\W*(yes|no)\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Validator:
    """Checks the batches of one task."""

    model: ChatModel
    settings: DriftSettings
    query: str
    permissions: Mapping[str, ToolPermission]
    first_plan: tuple[str, ...]

    def check_batch(self, before: PlanProgress, batch: Sequence[FunctionCall]) -> PlanCheck:
        """Check one batch of calls, which is accepted or refused as a whole."""
        deviations: list[dict[str, Any]] = []
        with span(VALIDATOR_SPAN) as opened:
            checked = self._check_plan(before, batch, deviations)
            if checked.refusal is None:
                checked = self._check_checklist(checked.progress, batch)
            opened.decision = {"calls": build_call_data(batch), "unplanned": deviations}
            if batch:
                opened.decision["allow"] = checked.refusal is None
            if checked.refusal is not None:
                opened.decision["refusal"] = checked.refusal.make_decision_data()
                if not self.settings.compat:  # Reference: a refused batch counts as achieved.
                    checked = replace(checked, progress=before)
        return checked

    def _check_plan(
        self, before: PlanProgress, batch: Sequence[FunctionCall], deviations: list[dict[str, Any]]
    ) -> PlanCheck:
        names = [call.function for call in batch]
        if self.settings.dynamic_validation:

            def may_extend(name: str, extended: tuple[str, ...], plan: tuple[str, ...]) -> bool:
                deviations.append({"name": name})
                return self._may_extend(deviations[-1], extended, plan, batch)

            return follow_plan(before, names, may_extend)
        # Without the check of the plan the checklist alone holds calls to their places. The reference does
        # not count them then, and so compares every batch with the last entry.
        if self.settings.compat:
            return PlanCheck(before)
        return PlanCheck(replace(before, achieved=(*before.achieved, *names)))

    def _check_checklist(self, progress: PlanProgress, batch: Sequence[FunctionCall]) -> PlanCheck:
        compat = self.settings.compat
        if compat:
            text = format_checklist(self.model, self.query, progress.checklist, self.settings)
            progress = replace(progress, checklist=text or "")
        # Reference: a batch is held against the entry of its last call.
        start = len(progress.achieved) - (1 if compat else len(batch))
        return PlanCheck(progress, compare_with_checklist(progress.checklist, start, batch, compat=compat))

    def _may_extend(
        self,
        deviation: dict[str, Any],
        extended: tuple[str, ...],
        plan: tuple[str, ...],
        batch: Sequence[FunctionCall],
    ) -> bool:
        permission = self.permissions.get(deviation["name"])
        deviation["permission"] = permission.value if permission else None
        if permission is None:
            return self.settings.compat  # Reference: a tool that does not exist is put into the plan.
        if permission is ToolPermission.READ:
            return True
        parts = {CURRENT: str(list(plan)), PROPOSED: str(list(extended))}
        if not self.settings.compat:  # Reference: the judge sees the plan only as extended since.
            parts = {FIRST: str(list(self.first_plan)), **parts}
        if self.settings.judge_arguments:
            parts[CALLS] = format_calls(batch)
        question = "\n".join(wrap_in_tag(tag, body) for tag, body in {**parts, QUERY: self.query}.items())
        answer = JUDGE_CONTRACT.ask(self.model, question, 0 if self.settings.compat else 1)
        deviation["judge"] = answer.words
        return is_yes_verdict(answer.words, compat=self.settings.compat)


def is_yes_verdict(reply: str, *, compat: bool) -> bool:
    """True if a judge accepts a call: its result section says Yes and nothing else."""
    # Reference: "Yes" or "YES" may stand anywhere.
    return "Yes" in reply or "YES" in reply if compat else find_verdict(reply) is True


def find_verdict(reply: str) -> bool | None:
    """Return the verdict in the result section of a judge's reply; None if it is neither Yes nor No."""
    verdict = _VERDICT.fullmatch(find_text_between_tags(reply, _RESULT) or "")
    return None if verdict is None else verdict[1].casefold() == "yes"


JUDGE_CONTRACT = ReplyContract(JUDGE_ROLE, *JUDGE, find_verdict)
"""The judge's answer."""
