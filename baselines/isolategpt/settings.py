"""`IsolateGPTSettings`: one variant of IsolateGPT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agentsys.base.option_checks import AtLeast1

AppGrouping = Literal["per_tool", "per_app", "one_app"]
PermissionPolicy = Literal["expected_only", "always_allow", "deny_all"]
PlaceholderStyle = Literal["bare", "described"]


@dataclass(frozen=True)
class IsolateGPTSettings:
    """What a variant does. Options as in `IsolateGPT`, which explains them."""

    apps: AppGrouping = "per_tool"
    app_of: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    permissions: PermissionPolicy = "expected_only"
    placeholders: PlaceholderStyle = "bare"
    strict_response: bool = False
    max_iterations: AtLeast1 = 15
    max_depth: AtLeast1 = 5
    max_runs: AtLeast1 = 50
    retrieved: AtLeast1 | None = None
