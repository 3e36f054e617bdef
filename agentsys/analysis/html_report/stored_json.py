"""Reading values of any type out of stored JSON that nobody checked: what does not fit becomes a default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_ONE_LINE = 90
"""Characters of JSON that still read well on one line."""


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def name(value: object, default: str = "") -> str:
    """A short text as it is; the default for anything else."""
    return value[:200] if isinstance(value, str) else default


def number(value: object) -> float | int | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e15 < value < 1e15 else None


def as_text(value: object) -> str:
    """A text as it is; anything else as JSON, indented where one line would be too long."""
    if isinstance(value, str):
        return value
    try:
        flat = json.dumps(value, ensure_ascii=False)
        return flat if len(flat) <= _ONE_LINE else json.dumps(value, indent=2, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return "(nested too deeply to be shown)"
