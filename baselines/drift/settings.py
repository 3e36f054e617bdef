"""`DriftSettings`: one variant of DRIFT."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agentsys.base.option_checks import AtLeast1
from baselines.drift.fixes import ALL_FIXES, DriftFix
from baselines.drift.permission import ToolPermission

UnreadableDetection = Literal["withhold", "keep"]


@dataclass(frozen=True)
class DriftSettings:
    """The options of one variant of DRIFT, which `Drift` explains."""

    build_constraints: bool = True
    dynamic_validation: bool = True
    injection_isolation: bool = True
    fixes: frozenset[DriftFix] = ALL_FIXES
    """Which of the reference's defects are mended."""
    permissions: Mapping[str, ToolPermission] = field(default_factory=lambda: MappingProxyType({}))
    judge_arguments: bool = False
    unreadable_detection: UnreadableDetection = "withhold"
    message_cap: AtLeast1 = 20
    max_rounds: AtLeast1 = 15
    parse_attempts: AtLeast1 = 3
    format_attempts: AtLeast1 = 3
    detector_calls: AtLeast1 = 2
    """Most questions to the detector about one result."""
