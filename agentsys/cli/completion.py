"""What the shell offers after TAB: names of configs, and overrides of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agentsys.base.config_catalog import CONFIG_GROUPS, list_config_names, list_setting_names

_NESTED = ("benchmark.version", "benchmark.suites", "executor.workers", "budget.usd")
"""Keys that are often set, below the top ones."""


def complete_names(group: str) -> Callable[[str], Iterable[str]]:
    """Make what offers the shipped names of a config group."""

    def offered(incomplete: str) -> Iterable[str]:
        return [name for name in list_config_names(group) if name.startswith(incomplete)]

    return offered


def complete_overrides(ctx: Any, incomplete: str) -> list[str]:
    """Offer `defense=`, then `defense=agentsys`; after a comma the next name of the list.

    Args:
        ctx: The context of the command, with the words before.
        incomplete: The word under the cursor. Bash breaks words at `=`: then it is what follows, `=` stands
            among the words before, and a cursor just behind it is on an empty word.
    """
    before = [word for value in ctx.params.values() if isinstance(value, list) for word in value]
    if not incomplete and before and (names := _group_names(str(before[-1]))):
        return names
    if len(before) > 1 and before[-1] == "=":
        return _complete_list(str(before[-2]), incomplete)
    key, given, value = incomplete.partition("=")
    if given:
        return [f"{key}={text}" for text in _complete_list(key, value)]
    return [f"{key}=" for key in (*list_setting_names(), *_NESTED) if key.startswith(incomplete)]


def _group_names(group: str) -> list[str]:
    return list_config_names(group) if group in CONFIG_GROUPS.values() else []


def _complete_list(group: str, value: str) -> list[str]:
    """Every way to end a list of names of which the last is not whole."""
    done, comma, last = value.rpartition(",")
    return [f"{done}{comma}{name}" for name in _group_names(group) if name.startswith(last)]
