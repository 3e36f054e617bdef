"""`CamelSettings`: one variant of CaMeL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

EvaluationMode = Literal["normal", "strict"]
Enforcement = Literal["live", "replay", "off"]


@dataclass(frozen=True)
class CamelSettings:
    """What a variant does. Options as in `Camel`, which explains them."""

    mode: EvaluationMode = "normal"
    enforcement: Enforcement = "live"
    as_published: bool = False
    attempts: int = 10
    empty_replies: int = 5
    query_attempts: int = 10
