"""Grounding: a value that no message of the request holds is replaced by a placeholder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from agentsys.models.simulated.playbook import Fact
from agentsys.models.simulated.script_position import PLACEHOLDER
from agentsys.models.simulated.text_matching import fold, folded_reading, stands_in

_TELLING = 100
"""Amounts from here on are also looked for without their decimals."""


def missing_facts(facts: Iterable[Fact], within: str, readings: Iterable[str]) -> list[str]:
    """Texts of the facts that `within` uses and nobody has told the agent, longest first.

    Args:
        facts: The facts that could be used here.
        within: The argument or answer, as text.
        readings: Every text of the request.
    """
    needed = [fact.text for fact in facts if fact.text in within]
    if not needed:
        return []
    heard = [folded_reading(text) for text in readings]
    missing = [text for text in needed if not any(stands_in(fold(text), hay) for hay in heard)]
    return sorted(missing, key=len, reverse=True)


def without(text: str, missing: Iterable[str]) -> str:
    """The text with exactly the missing facts replaced by the placeholder."""
    for fact in missing:
        text = re.sub(rf"(?<!\w){re.escape(fact)}(?!\w)", PLACEHOLDER, text)
    return text


def grounded_args(args: Mapping[str, Any], facts: Iterable[Fact], readings: Iterable[str]) -> dict[str, Any]:
    """A fresh copy of the arguments in which every value that has not been seen is a placeholder."""
    within = "\n".join(form for leaf in leaves(args) for form in leaf_forms(leaf))
    missing = missing_facts(facts, within, readings)
    return {name: _replaced(value, missing) for name, value in args.items()}


def leaf_forms(leaf: object) -> list[str]:
    """The texts by which a value may stand in an output: `98.7` also as `98.70`."""
    if isinstance(leaf, bool) or leaf is None:
        return []
    if isinstance(leaf, float):
        # Not `5` for 5.0: so small a number stands in most outputs by chance.
        whole = [str(int(leaf))] if leaf.is_integer() and abs(leaf) >= _TELLING else []
        return [str(leaf), f"{leaf:.2f}", *whole]
    return [str(leaf)]


def leaves(value: object) -> list[object]:
    """The scalars inside a JSON value, in order."""
    if isinstance(value, Mapping):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def _replaced(value: Any, missing: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {name: _replaced(item, missing) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, missing) for item in value]
    if isinstance(value, str):
        return without(value, missing)
    return PLACEHOLDER if any(form in missing for form in leaf_forms(value)) else value
