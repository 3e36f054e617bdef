"""`Settings`: which parts of AgentSys are on and how far its agents may go."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.defense.gate import GateRule
from agentsys.errors import ConfigError, unknown_name


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The checked options of one AgentSys variant (see `agentsys.defense.agentsys.AgentSys`)."""

    gate: GateRule = GateRule.SYNTACTIC
    isolation: bool = True
    validator: bool = True
    sanitizer: bool = True
    validate_main: bool = False
    max_depth: int = 3
    worker_steps: int = 15
    main_steps: int = 15
    sanitize_budget: int = 2
    gate_retries: int = 1

    def __post_init__(self) -> None:
        _whole("max_depth", self.max_depth, least=1)
        _whole("worker_steps", self.worker_steps, least=1)
        _whole("main_steps", self.main_steps, least=1)
        _whole("sanitize_budget", self.sanitize_budget, least=0)
        _whole("gate_retries", self.gate_retries, least=0)
        for name in ("isolation", "validator", "sanitizer", "validate_main"):
            _switch(name, getattr(self, name))
        if not self.validator and (self.validate_main or not self.isolation):
            cause = "validate_main: true" if self.validate_main else "isolation: false"
            raise ConfigError(
                f"AgentSys option '{cause}' needs 'validator: true'; set it,"
                " or use defense=none for a plain agent."
            )

    @property
    def sanitizes_first(self) -> bool:
        """Whether every output is cleaned before a worker sees it: there is no validator to ask for it."""
        return self.sanitizer and not self.validator


def gate_rule(name: str) -> GateRule:
    """The gate of this name.

    Raises:
        ConfigError: If there is none.
    """
    known = [rule.value for rule in GateRule]
    if name not in known:
        raise ConfigError(unknown_name("gate", str(name), known))
    return GateRule(name)


def _whole(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"AgentSys option '{name}' is {value!r}; give a whole number of at least {least}.")


def _switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ConfigError(f"AgentSys option '{name}' is {value!r}; give true or false.")
