"""The checklist: made readable by the formatter, compared with the arguments of proposed calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from json_repair import repair_json

from agentsys.base.python_parser import literal_eval
from agentsys.models.chat import ChatModel
from agentsys.models.prompted_tools import wrap_in_tag
from agentsys.models.trace import span
from baselines.drift.asking import ask_role
from baselines.drift.prompts import FORMATTER
from baselines.drift.refusal import ChecklistMismatch

FORMATTER_ROLE = "drift_formatter"
NAME, REQUIRED, CONDITIONS = "name", "required parameters", "conditions"
"""Keys of an entry."""
_TEMPLATE = re.compile(r"\{.*\}", re.DOTALL)
"""A value that is to be filled in later."""
_OPEN = {"none", "null"}


def write_formatter_question(query: str, checklist: str) -> str:
    """Write the formatter's question."""
    return "\n".join([wrap_in_tag("user_query", query), wrap_in_tag("parameter_checklist", checklist)])


def format_checklist(model: ChatModel, query: str, checklist: str, attempts: int) -> str | None:
    """The checklist as the formatter writes it, repaired to be JSON; None if no attempt gives any.

    Raises:
        ModelError: If the model gave no reply.
    """
    with span(FORMATTER_ROLE) as opened:
        for attempt in range(attempts):
            text = repair_json_text(ask_role(model, FORMATTER_ROLE, FORMATTER, write_formatter_question(query, checklist)))
            opened.decision = {"attempts": attempt + 1, "checklist": text}
            if text is not None:
                return text
    return None


def repair_json_text(text: str) -> str | None:
    """The JSON in a text, mended where it is nearly JSON; None where there is none."""
    try:
        mended = repair_in_linear_time(text)
        json.loads(mended)
    except (ValueError, RecursionError):
        return None
    return mended


def read_entries(text: str) -> list[Any] | None:
    """The entries of a checklist that is JSON, a Python literal, or nearly JSON; None if it is no list."""
    for read in (json.loads, literal_eval, lambda raw: json.loads(repair_in_linear_time(raw))):
        try:
            # Written and read again: a literal may hold what JSON does not know.
            found = json.loads(json.dumps(read(text.strip()), default=str))
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, list):
            return found
    return None


_LONGEST = 20_000
"""Characters of a text that is mended."""
_LOOKS = 6
"""Looks at the text for each of its characters. A checklist takes 2 to 5, a model in a loop a thousand."""


def repair_in_linear_time(text: str) -> str:
    """Repair a text with `json_repair`, in time that grows with the text's length and not its square.

    Raises:
        ValueError: If it is too long, takes too much work, or breaks json_repair.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"{len(text)} characters are too many to mend")
    try:
        return repair_json(_PacedText(text, [1000 + _LOOKS * len(text)]))
    except AssertionError:  # json-repair 0.55.1: a fence inside a string that never ends
        raise ValueError("json_repair cannot read it") from None


class _PacedText(str):
    """A text that can be looked at so often and no oftener; its parts and sums share what is left."""

    __slots__ = ("left",)
    left: list[int]

    def __new__(cls, text: str, left: list[int]) -> _PacedText:
        made = super().__new__(cls, text)
        made.left = left
        return made

    def __getitem__(self, place: Any) -> str:
        self.left[0] -= 1
        if self.left[0] < 0:
            raise ValueError("json_repair goes over it again and again")
        found = super().__getitem__(place)
        return _PacedText(found, self.left) if isinstance(place, slice) else found

    def __add__(self, more: str) -> _PacedText:
        return _PacedText(super().__add__(more), self.left)


def align_checklist(checklist: str, plan: Sequence[str]) -> str:
    """The checklist as JSON with one entry for each planned call, in the plan's order.

    A call takes the entry at its own place if that bears its name, or the first unused one that does;
    otherwise, and where the entry is not one, it gets an entry that asks nothing.
    """
    unused = [_read_entry(raw) for raw in read_entries(checklist) or []]
    found: list[dict[str, Any]] = []
    for place, name in enumerate(plan):
        here = unused[place] if place < len(unused) else None
        candidates = [place] if here is not None and here[NAME] == name else []
        candidates += [i for i, entry in enumerate(unused) if entry is not None and entry[NAME] == name]
        entry = unused[candidates[0]] if candidates else None
        if candidates:
            unused[candidates[0]] = None
        found.append(entry or {NAME: name, REQUIRED: None, CONDITIONS: None})
    return json.dumps(found, default=str)


def _read_entry(raw: Any) -> dict[str, Any] | None:
    """An entry whose open values are null; None where it is none."""
    if not isinstance(raw, dict) or not isinstance(raw.get(NAME), str):
        return None
    required = raw.get(REQUIRED)
    values = (
        {str(key): _read_entry_value(value) for key, value in required.items()} if isinstance(required, dict) else None
    )
    return {NAME: raw[NAME], REQUIRED: values or None, CONDITIONS: raw.get(CONDITIONS)}


def _read_entry_value(value: Any) -> Any:
    # `json_repair` reads Python's None as a text, and models write "null" in quotes.
    return None if isinstance(value, str) and value.strip().casefold() in _OPEN else value


def compare_with_checklist(
    checklist: str, start: int, batch: Sequence[FunctionCall], *, every_call: bool
) -> ChecklistMismatch | None:
    """Hold a batch against the checklist from entry `start` on; None if nothing speaks against it.

    A negative `start` counts from the end. Calls beyond the checklist pass, and so does everything where the
    checklist cannot be read: it says what a planner expected, not what is allowed.

    Args:
        checklist: JSON text.
        start: Index of the entry of the batch's first call.
        batch: The proposed calls.
        every_call: Go on behind a call without required values; the reference lets the rest pass.
    """
    try:
        entries = json.loads(checklist)
    except (ValueError, RecursionError):
        return None
    rest = entries[start:] if isinstance(entries, list) else []
    for place, (entry, call) in enumerate(zip(rest, batch, strict=False)):
        if not isinstance(entry, Mapping) or NAME not in entry or REQUIRED not in entry:
            return None
        if entry[NAME] != call.function:
            reason = f"the call in place {place + 1} is {call.function}, the checklist has {entry[NAME]}."
            return ChecklistMismatch("name", place, reason, tuple(batch), checklist)
        required = entry[REQUIRED]
        if required is not None and not isinstance(required, Mapping):
            return None
        if required is None and not every_call:
            return None
        fault = _find_mismatch(required or {}, call)
        if fault is not None:
            return ChecklistMismatch(fault[0], place, fault[1], tuple(batch), checklist)
    return None


def _find_mismatch(required: Mapping[str, Any], call: FunctionCall) -> tuple[str, str] | None:
    """Cause and reason why a call's arguments do not agree."""
    for key, value in required.items():
        expected = str(value)
        if value is None or _TEMPLATE.search(expected):
            continue
        if key not in call.args:
            return "missing", f"{call.function} lacks the argument {key}."
        given = str(call.args[key])
        if expected not in given and given not in expected:
            return "value", f"{key} of {call.function} is {given}, the checklist has {expected}."
    return None
