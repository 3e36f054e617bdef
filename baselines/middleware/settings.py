"""`GuardSettings`: which layers act, and what a score leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from baselines.middleware.risk.score import Combine, Thresholds

Scope = Literal["text", "sentences"]
"""What is held back of a text that is quarantined or blocked: all, or its sentences with instructions."""


class Layer(StrEnum):
    """One of the three, each usable alone."""

    NORMALIZATION = "normalization"
    POLICY = "policy"
    CONTAGION = "contagion"


@dataclass(frozen=True)
class GuardSettings:
    """Everything a decision depends on besides the text, the policy and what was read before."""

    layers: frozenset[Layer] = frozenset(Layer)
    thresholds: Thresholds = field(default_factory=Thresholds)
    combine: Combine = "accumulate"
    scope: Scope = "text"

    @classmethod
    def of(
        cls,
        layers: Sequence[str] | str | None = None,
        thresholds: Mapping[str, float] | None = None,
        **options: Any,
    ) -> GuardSettings:
        """Settings from options as a YAML has them.

        Raises:
            ConfigError: If an option has a value it cannot have.
        """
        names = [layers] if isinstance(layers, str) else list(Layer) if layers is None else list(layers)
        for name in names:
            if name not in [*Layer]:
                raise ConfigError(unknown_name("middleware layer", str(name), [*Layer]))
        if not names:
            raise ConfigError("middleware: layers is empty; name at least one of " + ", ".join(Layer) + ".")
        scores = _thresholds(thresholds or {})
        return check_options(
            cls, "middleware", options, layers=frozenset(map(Layer, names)), thresholds=scores
        )

    def has(self, layer: Layer) -> bool:
        """Whether a layer acts."""
        return layer in self.layers


def _thresholds(given: Mapping[str, float]) -> Thresholds:
    known = list(Thresholds.__dataclass_fields__)
    for name, value in given.items():
        if name not in known:
            raise ConfigError(unknown_name("middleware threshold", str(name), known))
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"middleware: thresholds.{name} is {value!r}; give a number from 0 to 10.")
    found = Thresholds(**{name: float(value) for name, value in given.items()})
    if not 0 <= found.rewrite <= found.quarantine <= found.block:
        raise ConfigError(
            f"middleware: thresholds are rewrite {found.rewrite:g}, quarantine {found.quarantine:g},"
            f" block {found.block:g}; they must rise."
        )
    return found
