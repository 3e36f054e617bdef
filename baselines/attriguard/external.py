"""External tools: those whose results may hold what somebody else wrote."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

External = Literal["unless_own", "fixed"]
"""`unless_own`: every tool but those known to repeat the agent's own words. `fixed`: a list, as published."""


@cache
def _names(kind: str) -> frozenset[str]:
    found = yaml.safe_load((files("baselines.attriguard") / "tools.yaml").read_text(encoding="utf-8"))
    return frozenset(found[kind])


def is_external(tool: str, rule: External) -> bool:
    """Whether a tool's results count as external. Under `unless_own` a tool that nobody knows does."""
    return tool in _names("fixed") if rule == "fixed" else tool not in _names("own")
