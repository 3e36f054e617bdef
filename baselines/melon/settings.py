"""`MelonSettings`: what a guarded turn depends on, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from agentsys.errors import ConfigError
from baselines.melon.call_text import CallStyle

RedactionScope = Literal["step", "newest"]
"""What a block takes out: every tool message of the blocked step, or (the reference) the last one."""
OnEmbeddingFailure = Literal["error", "block"]
"""What a failed masked pass or embedding means: the case errs, or the step is blocked."""


@dataclass(frozen=True)
class MelonSettings:
    """The options of `Melon` that its turns look at; they are described there."""

    key_arguments: Mapping[str, tuple[str, ...]]
    call_style: CallStyle = "joined"
    show_errors: bool = True
    redact: RedactionScope = "step"
    on_failure: OnEmbeddingFailure = "error"
    repeat_request: bool = False
    skip_last_masked: bool = False


def resolve_threshold(embedder: str, threshold: float | Mapping[str, float]) -> float:
    """The threshold that belongs to an embedder.

    Raises:
        ConfigError: If there is none, or it is no cosine.
    """
    value = threshold.get(embedder) if isinstance(threshold, Mapping) else threshold
    if value is None:
        raise ConfigError(
            f"melon: no threshold for embedder '{embedder}'; similarities of another embedder mean something"
            f" else, so calibrate one and give it: +defense.threshold.{embedder}=NUMBER."
        )
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1.0 <= value <= 1.0:
        raise ConfigError(f"melon: threshold {value!r} is no cosine; give a number from -1.0 to 1.0.")
    return float(value)
