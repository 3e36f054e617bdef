"""Names of models as tables show them: a simulated one says that it is one, once."""

from __future__ import annotations

from functools import lru_cache

SIMULATED_MARK = " (simulated)"
"""Appended to the name of a model behind which there was a simulated one."""
_NAMES_ITSELF = ("simulated", "simulated+", "simulated [", "simulated, fitted to ")
"""The simulated model's names, also with changed options or with the place of its files. The last one begins
those of earlier versions' records, whose agent was fitted to published runs."""
_NOT_SIMULATED_MARK = " (no simulated model)"


@lru_cache(maxsize=4096)
def mark_simulated_name(name: str, *, simulated: bool) -> str:
    """A model's name for tables: `gpt-4o`, `gpt-4o (simulated)`, `simulated+susceptibility=0.5`."""
    if simulated:
        return name if _names_itself(name) else f"{name}{SIMULATED_MARK}"
    return f"{name}{_NOT_SIMULATED_MARK}" if is_simulated_name(name) else name


def is_simulated_name(shown: str) -> bool:
    """Say of a name as tables show it whether a simulated model was behind the cases."""
    return shown.endswith(SIMULATED_MARK) or (_names_itself(shown) and not shown.endswith(_NOT_SIMULATED_MARK))


def strip_simulated_mark(shown: str) -> str:
    """A name as tables show it -> as records have it."""
    return shown.removesuffix(SIMULATED_MARK).removesuffix(_NOT_SIMULATED_MARK)


def _names_itself(name: str) -> bool:
    return name == _NAMES_ITSELF[0] or name.startswith(_NAMES_ITSELF[1:])
