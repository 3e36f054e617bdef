"""Progent in a few sentences, as one variant is set."""

from __future__ import annotations

from baselines.progent.fixes import ProgentFix
from baselines.progent.prompts import HINTED
from baselines.progent.settings import ProgentSettings

_OPENING = (
    "One agent works through the request and reads every tool result raw, in one conversation.",
    "Before a tool runs, its call is held against rules in code: a tool without a rule is refused.",
    "A refusal takes the result's place, says which rule was broken and repeats the request, and the agent"
    " goes on.",
)


def described(settings: ProgentSettings) -> str:
    """5 to 10 sentences on who makes the rules, what they hold, and when they change."""
    if not settings.enforces:
        return (
            "One agent works through the request and reads every tool result raw, in one conversation. There"
            " are no rules. No call is refused. No policy model is asked. Nothing is taken out of results."
        )
    return " ".join([*_OPENING, *_standing(settings), *_written(settings), *_update(settings)])


def _standing(settings: ProgentSettings) -> list[str]:
    base = {
        "suite": "Tools that only read the user's own data may always be called, with any arguments.",
        "none": "Every tool, one that only reads too, needs such a rule.",
    }[settings.base_rules]
    own = ["Further rules were written by hand and hold in every task."] if settings.rules else []
    return [base, *own]


def _written(settings: ProgentSettings) -> list[str]:
    if not settings.generate:
        return ["No rules are written for the request."]
    who = "For each request a policy model, which sees request and tools and no result, writes the rest:"
    what = (
        "which tools may be called, and, for arguments that the request settles, what they may be."
        if settings.conditions and settings.wording == "general"
        else "which tools may be called, with any arguments."
    )
    return [f"{who} {what}", *_details(settings)]


def _details(settings: ProgentSettings) -> list[str]:
    if settings.wording in HINTED:
        return [
            "It is told that a task takes two tools, and that a tool named in another style is a stranger."
        ]
    if not settings.conditions:
        return []
    if settings.mends(ProgentFix.TRY_ALL_ENTRIES):
        return ["Of several rules for a tool any may let a call pass."]
    return ["Of several rules for a tool the first alone counts."]


def _update(settings: ProgentSettings) -> list[str]:
    if not (settings.update and settings.generate):
        return ["The rules do not change during a task."]
    narrow = " New rules take effect only if they allow nothing more." if settings.only_narrow else ""
    return [
        "After each turn the policy model decides, without seeing the results, whether to look at the rules"
        " again; if so it reads the results raw and may write all its rules anew, wider or narrower."
        f"{narrow}"
    ]
