"""Policies P1, P2, P-star and P-double-star: what the labels of a call must be before it runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from baselines.fides.suite_rules import FidesCallPolicy, FidesRules
from baselines.fides.variables import write_value
from baselines.flow.groups import channel_members, file_sharers, read_identities
from baselines.flow.label import FlowLabel

# Whatever a mail program might make clickable: a scheme, or words joined by dots that end in letters.
_LINK = re.compile(r"[a-z][a-z0-9+.-]*://\S|\b[\w-]+(?:\.[\w-]+)*\.[^\W\d_]{2,}\b", re.IGNORECASE)


@dataclass(frozen=True)
class CallArgument:
    """One argument of a call, as it would run."""

    value: Any
    """Variables expanded."""
    label: FlowLabel


@dataclass(frozen=True)
class CallVerdict:
    """Whether a call may run."""

    allow: bool
    rule: str
    """The rule that let it through or stopped it; empty for a free tool."""
    reason: str = ""
    """What does not hold: names of rules and arguments, never a value."""


def has_link(text: str) -> bool:
    """Whether a text holds a link, bare domains included."""
    return _LINK.search(text) is not None


def judge_call(
    rules: FidesRules, tool: str, arguments: Mapping[str, CallArgument], call: FlowLabel, environment: Any
) -> CallVerdict:
    """The verdict on one call; `call` is the label of its being made."""
    if tool in rules.free:
        return CallVerdict(True, "")
    policy = rules.policies.get(tool, FidesCallPolicy(rule="p1"))
    untrusted = "" if call.is_trusted else "P1: untrusted data has had a part in this call being made"
    if policy.rule == "p1":
        return CallVerdict(not untrusted, "P1", untrusted)
    unreadable = _find_unreadable(policy, arguments, environment)
    if policy.rule == "p_double_star":
        reason = untrusted or unreadable
        return CallVerdict(not reason, "P1 and P2", reason)
    if not unreadable:
        return CallVerdict(True, "P2")
    return CallVerdict(not untrusted, "P1", f"{untrusted}, and {unreadable}" if untrusted else "")


def _find_unreadable(policy: FidesCallPolicy, arguments: Mapping[str, CallArgument], environment: Any) -> str:
    """What of P2 does not hold: somebody reached may not read an argument, or it has an untrusted link."""
    readers = set(_find_recipients(policy, arguments, environment))
    for name, argument in arguments.items():
        if argument.value is None:
            continue
        if not argument.label.is_readable_by(readers):
            return f"P2: somebody it goes to may not read {name}"
        if not argument.label.is_trusted and name not in policy.readers_are and _holds_link(argument.value):
            return f"P2: {name} has a link that is not trusted"
    return ""


def _find_recipients(policy: FidesCallPolicy, arguments: Mapping[str, CallArgument], environment: Any) -> Iterable[str]:
    for name in policy.readers_are:
        if name in arguments:
            yield from read_identities(arguments[name].value)
    groups = (
        (policy.readers_are_sharers_of, file_sharers),
        (policy.readers_are_members_of, channel_members),
    )
    for named, group in groups:
        if named is not None and named in arguments:
            yield from group(environment, write_value(arguments[named].value))


def _holds_link(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_link(held) for held in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_link(held) for held in value)
    return has_link(write_value(value))
