"""What the `.log` beside ASB's results adds: which tools the planner itself had chosen.

The results hold plans only as ASB patched them, with the attack tool in every step. The log prints each
plan as it was parsed, before that.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MOST_CHARS = 200_000
"""Longest line that is parsed."""

_PARSED = "workflow after check: "
"""How a line with a parsed plan begins."""


def planned_tools(results: Path) -> frozenset[str] | None:
    """Every tool that stands in some plan of a run.

    Names are compared whole, never as parts: many names of attack tools contain one another. A plan's
    line does not say whose it is, but no two cases share an attack tool.

    Args:
        results: The CSV file; its log has the same name and ends in `.log`.

    Returns:
        None without a log, or where it prints no plan.
    """
    try:
        with results.with_suffix(".log").open(encoding="utf-8", errors="replace") as log:
            plans = [plan for line in log for plan in _plans(line)]
    except OSError:
        return None
    return frozenset(tool for plan in plans for tool in _tools(plan)) if plans else None


def _plans(line: str) -> Iterator[list[object]]:
    if not line.startswith(_PARSED) or len(line) > MOST_CHARS:
        return
    try:
        plan = ast.literal_eval(line.removeprefix(_PARSED).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return  # `None` after a failed try is no plan; nor is half a line of a killed run
    if isinstance(plan, list):
        yield plan


def _tools(plan: list[object]) -> Iterator[str]:
    for step in plan:
        used = step.get("tool_use") if isinstance(step, dict) else None
        if isinstance(used, list):
            yield from (tool for tool in used if isinstance(tool, str))
