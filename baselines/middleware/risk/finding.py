"""`RiskFinding`: one reason why a text or a call is suspicious."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

EXCERPT = 160
"""Most characters of what was found that are shown."""


@dataclass(frozen=True)
class RiskFinding:
    """What was found, where, and how sure it makes us."""

    layer: str
    """`normalization`, `policy` or `contagion`."""
    kind: str
    """The pattern's id, or what kind of thing it is, e.g. `zero_width`."""
    category: str
    weight: float
    """Confidence, 0 to 1. 0: it is told and taken out, and says nothing about intent."""
    excerpt: str
    """The words it was found in. Untrusted."""

    def as_data(self) -> dict[str, Any]:
        """JSON-ready, for spans and the command line."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "category": self.category,
            "weight": round(self.weight, 3),
            "excerpt": self.excerpt[:EXCERPT],
        }
