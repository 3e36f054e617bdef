"""Options that border defenses have in common, and their checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from agentsys.errors import ConfigError, unknown_name

Unit = Literal["result", "strings"]
"""What a guard is shown at once: a whole result, or each string in it."""
OnDoubt = Literal["withhold", "keep"]
"""What follows where a guard gave no answer that can be used."""


def check_choices(defense: str, chosen: Mapping[str, tuple[object, Collection[str]]]) -> None:
    """See that each option has one of its values.

    Args:
        defense: The defense's name, for the message.
        chosen: Option -> its value and those it may have.

    Raises:
        ConfigError: Naming the first that has not.
    """
    for option, (value, known) in chosen.items():
        if value not in known:
            raise ConfigError(unknown_name(f"{defense} {option}", str(value), known))


def check_flags(defense: str, flags: Mapping[str, object]) -> None:
    """See that options are true or false.

    Raises:
        ConfigError: Naming the first that is neither.
    """
    for option, value in flags.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{defense}: {option} is {value!r}; give true or false.")


def check_counts(defense: str, counts: Mapping[str, object], least: int = 0) -> None:
    """See that options are whole numbers from `least` on.

    Raises:
        ConfigError: Naming the first that is not.
    """
    for option, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(f"{defense}: {option} is {value!r}; give a whole number of at least {least}.")
