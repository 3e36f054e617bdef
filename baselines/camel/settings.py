"""`CamelSettings`: one variant of CaMeL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentsys.options import AtLeast1

EvaluationMode = Literal["normal", "strict"]
Enforcement = Literal["live", "replay", "off"]


@dataclass(frozen=True)
class CamelSettings:
    """What a variant does. Options as in `Camel`, which explains them."""

    mode: EvaluationMode = "normal"
    enforcement: Enforcement = "live"
    as_published: bool = False
    attempts: AtLeast1 = 10
    empty_replies: AtLeast1 = 5
    query_attempts: AtLeast1 = 10
