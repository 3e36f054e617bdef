"""How often Python looks for rings of objects that nothing refers to.

A command makes many objects at a time, modules and records, and keeps nearly all: Python's own numbers
(700, 10, 10) cost a seventh of the CPU of a table and of a run's start.

Imports next to nothing: what is imported before this was looked through for nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

_LOOKED_AT = (50_000, 5, 2)
"""New objects after which is looked, and how many such looks until older objects are looked at too."""

_PLANNED = (500_000, 5, 2)
"""The same while a run is planned: one of 10,000 cases keeps 260,000 objects until then."""

_SOON_OVER = {"results", "compare", "report", "measures", "budget", "table", "figure"}
"""Commands that read, write and end. What they make is in use until then, so nothing is looked for: the looks
are a twentieth of the CPU of a table of many records."""


def look_seldom(arguments: Sequence[str]) -> None:
    """Look as seldom as suits a command of these arguments."""
    gc.set_threshold(*_PLANNED if "run" in arguments[:1] else _LOOKED_AT)
    if _SOON_OVER.intersection(arguments[:1]):
        gc.disable()


def look_as_cases_run() -> None:
    """Look as often as suits the long part of a run."""
    gc.set_threshold(*_LOOKED_AT)
