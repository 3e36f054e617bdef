"""`GuardSettings`: which layers act, and what a score leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from baselines.middleware.risk.score import CombineRule, Thresholds

GuardScope = Literal["text", "sentences"]
"""What is held back of a text that is quarantined or blocked: all, or its sentences with instructions."""


class GuardLayer(StrEnum):
    """One of the three, each usable alone."""

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
        """Settings from options as a YAML has them.

        Raises:
            ConfigError: If an option has a value it cannot have.
        """
        names = [layers] if isinstance(layers, str) else list(GuardLayer) if layers is None else list(layers)
        for name in names:
            if name not in [*GuardLayer]:
                raise ConfigError(unknown_name("middleware layer", str(name), [*GuardLayer]))
        if not names:
            raise ConfigError("middleware: layers is empty; name at least one of " + ", ".join(GuardLayer) + ".")
        scores = _read_thresholds(thresholds or {})
        return check_options(
            cls, "middleware", options, layers=frozenset(map(GuardLayer, names)), thresholds=scores
        )

    def has(self, layer: GuardLayer) -> bool:
        """Whether a layer acts."""
        return layer in self.layers


def _read_thresholds(given: Mapping[str, float]) -> Thresholds:
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
