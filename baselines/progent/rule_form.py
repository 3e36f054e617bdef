"""Hand-written rules as a config gives them, read strictly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentsys.errors import ConfigError
from baselines.progent.conditions import find_condition_fault
from baselines.progent.rules import STANDING, RuleEffect, RefusalFallback, PolicyRule, RuleTable


class RuleForm(BaseModel):
    """One rule, as it stands in a YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    priority: int = STANDING
    effect: Literal["allow", "forbid"] = "allow"
    conditions: dict[str, dict[str, Any] | str] = {}
    """Argument -> JSON Schema, or a regular expression that the value must begin with."""
    fallback: Literal["message", "stop", "ask"] = "message"
    updates: dict[str, list[RuleForm]] = {}
    """Tool -> the rules it has once a call has passed by this one."""

    def as_rule(self) -> PolicyRule:
        """As it is evaluated."""
        return PolicyRule(
            self.priority,
            RuleEffect(self.effect),
            MappingProxyType(dict(self.conditions)),
            RefusalFallback(self.fallback),
            MappingProxyType({tool: _build_rules(forms) for tool, forms in self.updates.items()}),
        )


_RULES_ADAPTER = TypeAdapter(dict[str, list[RuleForm]])


def read_config_rules(name: str, given: Mapping[str, Any] | None) -> RuleTable:
    """The rules of a config.

    Raises:
        ConfigError: If they are not of this form, or a condition cannot be applied.
    """
    try:
        forms = _RULES_ADAPTER.validate_python(dict(given or {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{name}: rules.{place}: {first['msg']}.") from None
    for tool, rules in forms.items():
        _check_forms(f"{name}: rules.{tool}", rules)
    return MappingProxyType({tool: _build_rules(rules) for tool, rules in forms.items()})


def _build_rules(forms: Sequence[RuleForm]) -> tuple[PolicyRule, ...]:
    return tuple(form.as_rule() for form in forms)


def _check_forms(place: str, forms: Sequence[RuleForm]) -> None:
    for form in forms:
        for argument, condition in form.conditions.items():
            fault = find_condition_fault(condition)
            if fault is not None:
                raise ConfigError(f"{place}: the condition on {argument} {fault}.")
        for tool, later in form.updates.items():
            _check_forms(f"{place}.updates.{tool}", later)
