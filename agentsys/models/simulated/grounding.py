"""Grounding: a value that no message of the request holds is replaced by a placeholder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentsys.models.simulated.playbook import Fact
from agentsys.models.simulated.script_position import PLACEHOLDER
from agentsys.models.simulated.text_matching import fold_text, fold_decoded, occurs_in

_LARGE_AMOUNT = 100
"""Amounts from here on are also looked for without their decimals."""


def find_fact(fact: Fact, text: str) -> str | None:
    """What a text says of a fact; None where it does not hold it.

    Of a number that is another one in each case: the last that stands there, in a declared field or as the
    tool wrote it.
    """
    if not fact.pattern:
        return fact.text if occurs_in(fold_text(fact.text), fold_decoded(text)) else None
    declared = rf"\b{re.escape(fact.field)}\b[\"']?: [\"']?(\d+)"
    for pattern in (declared, fact.pattern):
        for reading in (text, fold_decoded(text)):
            found = re.findall(pattern, reading, re.IGNORECASE)
            if found:
                return str(found[-1])
    return None


def fact_replacements(facts: Iterable[Fact], within: str, readings: Iterable[str]) -> dict[str, str]:
    """What stands in place of facts that `within` uses: the number that was read, or the placeholder.

    Args:
        facts: The facts that could be used here.
        within: The argument or answer, as text.
        readings: Every text of the request, in order; a number is the one that was told last.

    Returns:
        Text of a fact -> what stands in its place, the longest first; nothing for what stays as it is.
    """
    needed = sorted((fact for fact in facts if fact.text in within), key=lambda one: -len(one.text))
    heard = list(readings) if needed else []
    heard.reverse()
    found = {fact.text: next((said for text in heard if (said := find_fact(fact, text))), None) for fact in needed}
    return {text: said or PLACEHOLDER for text, said in found.items() if said != text}


def replace_facts(text: str, replaced: Mapping[str, str]) -> str:
    """The text with exactly these facts replaced."""
    for fact, said in replaced.items():
        text = re.sub(rf"(?<!\w){re.escape(fact)}(?!\w)", said, text)
    return text


def ground_arguments(args: Mapping[str, Any], facts: Iterable[Fact], readings: Iterable[str]) -> dict[str, Any]:
    """A fresh copy of the arguments in which every value that has not been seen is a placeholder."""
    within = "\n".join(form for leaf in scalar_leaves(args) for form in leaf_forms(leaf))
    replaced = fact_replacements(facts, within, readings)
    return {name: _replace_values(value, replaced) for name, value in args.items()}


def leaf_forms(leaf: object) -> list[str]:
    """The texts by which a value may stand in an output: `98.7` also as `98.70`."""
    if isinstance(leaf, bool) or leaf is None:
        return []
    if isinstance(leaf, float):
        # Not `5` for 5.0: so small a number stands in most outputs by chance.
        whole = [str(int(leaf))] if leaf.is_integer() and abs(leaf) >= _LARGE_AMOUNT else []
        return [str(leaf), f"{leaf:.2f}", *whole]
    return [str(leaf)]


def scalar_leaves(value: object) -> list[object]:
    """The scalars inside a JSON value, in order."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in scalar_leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in scalar_leaves(item)]
    return [value]


def _replace_values(value: Any, replaced: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _replace_values(item, replaced) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_values(item, replaced) for item in value]
    if isinstance(value, str):
        return replace_facts(value, replaced)
    return PLACEHOLDER if any(form in replaced for form in leaf_forms(value)) else value
