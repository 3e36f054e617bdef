"""Rules and how they are evaluated: the deterministic half of Progent. Pure; no model is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from baselines.progent.conditions import ArgumentCondition, find_condition_failure

STANDING, WRITTEN = 1, 100
"""Priorities of the rules that a suite brings and of those that the policy model writes."""


class RuleEffect(Enum):
    """What a rule whose conditions hold does."""

    ALLOW = "allow"
    FORBID = "forbid"


class RefusalFallback(Enum):
    """What becomes of a call that no rule let pass."""

    MESSAGE = "message"
    """The agent is told, and goes on."""
    STOP = "stop"
    """The task ends."""
    ASK = "ask"
    """The user is asked. Nobody is there in a benchmark, and the answer that is assumed is no."""


@dataclass(frozen=True)
class PolicyRule:
    """One rule of one tool."""

    priority: int
    """Smaller numbers are looked at first."""
    effect: RuleEffect = RuleEffect.ALLOW
    conditions: Mapping[str, ArgumentCondition] = field(default_factory=lambda: MappingProxyType({}))
    """Argument -> what it must satisfy. One that is not in the call is skipped; none at all always hold."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    updates: Mapping[str, tuple[PolicyRule, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """Tool -> the rules it has from now on, once a call has passed by this rule."""

    def find_failure(self, args: Mapping[str, Any]) -> str | None:
        """Why the conditions do not hold for these arguments; None if they do."""
        for name, condition in self.conditions.items():
            if name in args and (why := find_condition_failure(name, args[name], condition)) is not None:
                return why
        return None


RuleTable = Mapping[str, Sequence[PolicyRule]]
"""Tool -> its rules, in the order in which they were made."""


@dataclass(frozen=True)
class PolicyDecision:
    """What the rules say about one call."""

    allowed: bool
    cause: str = ""
    """Why it is refused, for the agent; empty where it is allowed."""
    fallback: RefusalFallback = RefusalFallback.MESSAGE
    by: PolicyRule | None = None
    """The rule that decided; None where there was none."""


def decide_call(rules: RuleTable | None, tool: str, args: Mapping[str, Any], *, first_only: bool) -> PolicyDecision:
    """Evaluate the rules of a tool for one call.

    Args:
        rules: None: nothing is enforced.
        tool: Its name.
        args: JSON-ready.
        first_only: Whether the first written rule of a tool has the last word, as in the reference.

    Returns:
        Allowed by the first allowing rule whose conditions hold, unless a forbidding one came before it.
        Where no rule decides, the last rule's fallback holds.
    """
    if rules is None:
        return PolicyDecision(True)
    own = rules.get(tool, ())
    if not own:
        return PolicyDecision(False, write_not_allowed(tool))
    first_failure = ""
    for rule in order_rules(own):
        broken = rule.find_failure(args)
        if rule.effect is RuleEffect.FORBID:
            if broken is None:
                return PolicyDecision(False, write_not_allowed(tool), rule.fallback, rule)
        elif broken is None:
            return PolicyDecision(True, by=rule)
        else:
            first_failure = first_failure or broken
            if first_only and rule.priority == WRITTEN and rule.fallback is RefusalFallback.MESSAGE:
                return PolicyDecision(False, broken, by=rule)
    return PolicyDecision(False, first_failure or write_not_allowed(tool), order_rules(own)[-1].fallback)


def order_rules(rules: Sequence[PolicyRule]) -> list[PolicyRule]:
    """By priority; of equal ones those that forbid come first, then the order they were made in."""
    return sorted(rules, key=lambda rule: (rule.priority, rule.effect is not RuleEffect.FORBID))


def write_not_allowed(tool: str) -> str:
    """The cause where it lies in the tool and not in an argument."""
    return f"The tool '{tool}' may not be used in this task."


def merge_rules(first: RuleTable, second: RuleTable) -> dict[str, tuple[PolicyRule, ...]]:
    """The rules of both."""
    tools = [*first, *(tool for tool in second if tool not in first)]
    return {tool: (*first.get(tool, ()), *second.get(tool, ())) for tool in tools}


def allow_under(priority: int, conditions: Mapping[str, ArgumentCondition] | None = None) -> PolicyRule:
    """A rule that allows under these conditions, and whose refusals are told to the agent."""
    return PolicyRule(priority, conditions=MappingProxyType(dict(conditions or {})))
