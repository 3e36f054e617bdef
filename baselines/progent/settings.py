"""`ProgentSettings`: one variant of Progent."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from agentsys.base.option_checks import AtLeast1
from baselines.progent.fixes import ALL_FIXES, ProgentFix
from baselines.progent.rules import RuleTable

PolicyPromptKind = Literal["general", "asb", "asb_hinted"]
StandingRules = Literal["suite", "none"]
OnUpdateError = Literal["keep", "raise"]


@dataclass(frozen=True)
class ProgentSettings:
    """What a variant of Progent does. Options as in `Progent`, which explains them."""

    generate: bool = True
    update: bool = True
    conditions: bool = True
    only_narrow: bool = False
    on_update_error: OnUpdateError = "keep"
    wording: PolicyPromptKind = "general"
    base_rules: StandingRules = "suite"
    rules: RuleTable = field(default_factory=lambda: MappingProxyType({}))
    repair_array_enums: bool = False
    fixes: frozenset[ProgentFix] = ALL_FIXES
    """Which of the reference's defects are mended."""
    max_rounds: AtLeast1 = 15
    attempts: AtLeast1 = 6
    """Most replies asked for, for one policy."""

    def fixes_defect(self, fix: ProgentFix) -> bool:
        """Whether one of the reference's defects is mended."""
        return fix in self.fixes

    @property
    def enforces_rules(self) -> bool:
        """Whether any call can be refused."""
        return self.generate or self.base_rules != "none" or bool(self.rules)
