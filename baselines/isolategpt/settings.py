"""`IsolateGPTSettings`: one variant of IsolateGPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agentsys.options import AtLeast1

Grouping = Literal["per_tool", "per_app", "one_app"]
Policy = Literal["expected_only", "always_allow", "deny_all"]
Placeholders = Literal["bare", "described"]


@dataclass(frozen=True)
class IsolateGPTSettings:
    """What a variant does. Options as in `IsolateGPT`, which explains them."""

    apps: Grouping = "per_tool"
    app_of: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Tool -> app, under `per_app`; a tool that is not named is an app of its own."""
    permissions: Policy = "expected_only"
    placeholders: Placeholders = "bare"
    strict_response: bool = False
    max_iterations: AtLeast1 = 15
    """Most replies of one run of a spoke."""
    max_depth: AtLeast1 = 5
    """Most spokes that wait for each other, the first one included."""
    max_runs: AtLeast1 = 50
    """Most runs of spokes in a task."""
    retrieved: AtLeast1 | None = None
    """Tools that the planner is shown, those nearest to the request; None: all."""
