"""`GuardSettings`: layers, thresholds and rules of a guard, with its findings and their score.

The first functions load the packages of the extra when they are needed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from types import ModuleType
from typing import Annotated, Any, Literal

from pydantic import Field

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, find_missing_packages, make_not_installed_error, unknown_name

EXTRA = "middleware"
REQUIRED_PACKAGES = ("ada_url", "bs4", "confusable_homoglyphs", "html5lib", "idna", "jsonschema", "sklearn")
"""Packages of the extra, by import name."""


@lru_cache(maxsize=32)
def load_optional(module: str) -> ModuleType:
    """Import an optional package's module.

    Raises:
        Unavailable: If it is not installed; the message names the extra.
    """
    package = module.partition(".")[0]
    if find_missing_packages([package]):
        raise make_not_installed_error("The middleware", [package], EXTRA)
    return importlib.import_module(module)


def require_middleware_packages() -> None:
    """Check that every package of the extra is installed, without importing any."""
    gone = find_missing_packages(REQUIRED_PACKAGES)
    if gone:
        raise make_not_installed_error("The middleware", gone, EXTRA)


EXCERPT = 160
"""Most characters of what was found that are shown."""


@dataclass(frozen=True)
class RiskFinding:
    """One risk found in a text or a call."""

    layer: str
    """`normalization`, `policy` or `contagion`."""
    kind: str
    """The pattern's id, or another kind of finding, e.g. `zero_width`."""
    category: str
    weight: float
    """Confidence, 0 to 1. 0: reported and removed, but no evidence of intent."""
    excerpt: str
    """The words it was found in. Untrusted."""

    def as_data(self) -> dict[str, Any]:
        """Return JSON-ready data for spans and the command line."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "category": self.category,
            "weight": round(self.weight, 3),
            "excerpt": self.excerpt[:EXCERPT],
        }


CombineRule = Literal["accumulate", "maximum"]
"""`accumulate`: 10 x (1 - product of 1 - weight): every finding adds. `maximum`: 10 x the largest weight."""


class Handling(StrEnum):
    """Handling of a text or a call, from the mildest to the strictest."""

    ALLOW = "allow"
    """It passes as it is."""
    REWRITE = "rewrite"
    """The findings are cut out, the rest passes."""
    QUARANTINE = "quarantine"
    """All of it is held back for a person to look at; the record keeps it."""
    BLOCK = "block"
    """No model sees it, no tool runs it."""


HANDLING_ORDER = tuple(Handling)
"""From the mildest to the strictest."""


Score = Annotated[float, Field(ge=0, le=10)]


@dataclass(frozen=True)
class Thresholds:
    """Lowest score of each action. A score on the edge takes the stricter side."""

    rewrite: Score = 3.0
    quarantine: Score = 5.0
    block: Score = 6.6

    def pick_handling(self, score: float) -> Handling:
        """Return the handling for a score."""
        return HANDLING_ORDER[sum(score >= limit for limit in (self.rewrite, self.quarantine, self.block))]


def combine_weights(weights: Iterable[float], how: CombineRule = "accumulate") -> float:
    """Return the score, 0 to 10 with three decimals, of findings with confidences from 0 to 1."""
    if how == "maximum":
        return round(10 * max(weights, default=0.0), 3)
    return round(10 * (1 - math.prod(1 - weight for weight in weights)), 3)


GuardScope = Literal["text", "sentences"]
"""Withheld part of a quarantined or blocked text: all, or its sentences with instructions."""


class GuardLayer(StrEnum):
    """One of the three layers, each usable alone."""

    NORMALIZATION = "normalization"
    POLICY = "policy"
    CONTAGION = "contagion"


@dataclass(frozen=True)
class GuardSettings:
    """Everything a decision depends on besides the text, the policy and what was read before."""

    layers: frozenset[GuardLayer] = frozenset(GuardLayer)
    thresholds: Thresholds = field(default_factory=Thresholds)
    combine: CombineRule = "accumulate"
    scope: GuardScope = "text"

    @classmethod
    def from_options(
        cls,
        layers: Sequence[str] | str | None = None,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> GuardSettings:
        """Settings from options as a YAML has them."""
        names = [layers] if isinstance(layers, str) else list(GuardLayer) if layers is None else list(layers)
        for name in names:
            if name not in [*GuardLayer]:
                raise ConfigError(unknown_name("middleware layer", str(name), [*GuardLayer]))
        if not names:
            raise ConfigError(f"middleware: layers is empty; name at least one of {', '.join(GuardLayer)}.")
        limits = check_options(Thresholds, "middleware thresholds", thresholds or {})
        if not limits.rewrite <= limits.quarantine <= limits.block:
            scores = ", ".join(f"{name} {score:g}" for name, score in vars(limits).items())
            raise ConfigError(f"middleware: thresholds are {scores}; they must rise.")
        layer_set = frozenset(map(GuardLayer, names))
        return check_options(cls, "middleware", options, layers=layer_set, thresholds=limits)

    def has(self, layer: GuardLayer) -> bool:
        """True if a layer is on."""
        return layer in self.layers
