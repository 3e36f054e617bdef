"""`AgentSysSettings`: which parts of AgentSys are on and how far its agents may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from agentsys.base.option_checks import AtLeast0, AtLeast1, check_options
from agentsys.defense.gate import GateRule
from agentsys.errors import ConfigError


class CommandJudge(Enum):
    """The judge of whether a command may run."""

    OFF = "off"
    """Nobody: every command runs."""
    MODEL = "model"
    """The validator (the paper)."""


class SanitizerTiming(Enum):
    """The moment at which an output is cleaned."""

    OFF = "off"
    """Never: a denial ends the subtask."""
    ON_DENIAL = "on_denial"
    """After a refused call, before the extraction starts again (the paper)."""
    AT_INGESTION = "at_ingestion"
    """Every output, before a worker sees it; a denial ends the subtask."""
    BOTH = "both"
    """Every output, and once more after a refused call."""


class GateRetry(Enum):
    """The context in which a worker whose reply the gate refused is asked again."""

    SAME = "same_context"
    """Its own, with a sentence on what was wrong."""
    FRESH = "fresh_context"
    """A new one, as if it had not replied: nothing it wrote or fetched is left."""


class FillMode(Enum):
    """The declared fields that code fills in, without a model."""

    NONE = "none"
    """None (the paper): a worker reads every output."""
    STATUS = "status"
    """`{"status": "string"}`, what a call that only acts declares."""
    TYPED = "typed"
    """That, and fields of a closed type whose name the tool's own value has
    (`agentsys.defense.delegation`).
    """


class WorkerTools(Enum):
    """The condition under which a worker above `max_depth` is offered tools."""

    ALWAYS = "always"
    """From the start, all of them (the paper)."""
    ON_REQUEST = "on_request"
    """Once it has said that a field is missing; then those that only read."""
    NEVER = "never"
    """Never."""


class TraceView(Enum):
    """The calls that a worker is shown."""

    CALLS = "calls"
    """Those of the agents above it, in order."""
    PATH = "path"
    """Those on the way from the main agent to its output: the ones whose results are being read."""


class RepeatPolicy(Enum):
    """The answer to a main agent that makes the very same reading call again."""

    RUN = "run"
    """It runs again and is read again."""
    KEPT = "kept"
    """It is answered as before, as long as no command has run in between."""


@dataclass(frozen=True, kw_only=True)
class AgentSysSettings:
    """The checked options of one AgentSys variant, as its YAML names them (docs/agentsys.md has the table).

    Options that are a choice may be given by name; `validator`, `validate_main` and `sanitizer` also as
    true or false, for the paper's way of doing it and for off.
    """

    gate: GateRule = GateRule.SYNTACTIC
    isolation: bool = True
    validator: CommandJudge = CommandJudge.MODEL
    validate_main: CommandJudge = CommandJudge.OFF
    sanitizer: SanitizerTiming = SanitizerTiming.ON_DENIAL
    gate_retry: GateRetry = GateRetry.SAME
    fill: FillMode = FillMode.NONE
    worker_tools: WorkerTools = WorkerTools.ALWAYS
    trace: TraceView = TraceView.CALLS
    repeats: RepeatPolicy = RepeatPolicy.RUN
    max_depth: AtLeast1 = 3
    worker_steps: AtLeast1 = 15
    main_steps: AtLeast1 = 15
    sanitize_budget: AtLeast0 = 2
    gate_retries: AtLeast0 = 1
    case_calls: Annotated[int, Field(ge=3)] = 200
    subtask_calls: AtLeast1 = 60
    calls_per_turn: AtLeast1 = 20
    validator_threshold: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Least probability of the validator's True against its False; None (the paper): its word decides."""
    pin_tools: bool = False
    """True: tools are shown, labelled and checked as first seen; False (the paper): as they are now."""

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> AgentSysSettings:
        """Build the settings from a YAML's options.

        Raises:
            ConfigError: If an option is unknown or wrong.
        """
        given = {"validator": True, "validate_main": False, "sanitizer": True, **options}
        for name in ("validator", "validate_main"):
            given[name] = _resolve_switch(given[name], on=CommandJudge.MODEL)
        judged = given["validator"] not in (CommandJudge.OFF, CommandJudge.OFF.value)
        cleaned = SanitizerTiming.ON_DENIAL if judged else SanitizerTiming.AT_INGESTION
        given["sanitizer"] = _resolve_switch(given["sanitizer"], on=cleaned)
        return check_options(cls, "AgentSys", given)

    def __post_init__(self) -> None:
        self._check_judges()
        if self.case_calls <= self.main_steps + 1:
            raise ConfigError(
                f"AgentSys option 'case_calls' is {self.case_calls}, which the main agent's {self.main_steps}"
                f" main_steps use up alone; give at least {self.main_steps + 2}."
            )

    def _check_judges(self) -> None:
        if self.validator is CommandJudge.OFF and (
            self.validate_main is not CommandJudge.OFF or not self.isolation
        ):
            cause = "isolation: false" if not self.isolation else f"validate_main: {self.validate_main.value}"
            raise ConfigError(
                f"AgentSys option '{cause}' needs 'validator: true'; set it,"
                " or use defense=none for a plain agent."
            )
        if self.sanitizer is SanitizerTiming.ON_DENIAL and self.validator is CommandJudge.OFF:
            raise ConfigError(
                "AgentSys option 'sanitizer: on_denial' needs a validator that denies; set 'validator: true',"
                " or 'sanitizer: at_ingestion'."
            )

    @property
    def sanitizes_first(self) -> bool:
        """True if every output is sanitized before a worker sees it."""
        return self.sanitizer in (SanitizerTiming.AT_INGESTION, SanitizerTiming.BOTH)

    @property
    def has_judge(self) -> bool:
        """True if a validator judges workers' commands, so that the sanitizer is not the only defense."""
        return self.validator is not CommandJudge.OFF

    @property
    def sorts_tools(self) -> bool:
        """True if the tools' privileges are needed, so that a model has to sort them."""
        late = self.worker_tools is WorkerTools.ON_REQUEST and self.max_depth > 1
        return self.has_judge or late or self.repeats is RepeatPolicy.KEPT

    @property
    def max_restarts(self) -> int:
        """Number of times an output is sanitized and read again after a denial."""
        restarts = self.sanitizer in (SanitizerTiming.ON_DENIAL, SanitizerTiming.BOTH)
        return self.sanitize_budget if restarts else 0


def _resolve_switch(value: object, on: Enum) -> object:
    """Resolve true and false (YAML reads a bare `off` as false) to a choice; keep any other value."""
    return (on if value else type(on)("off")) if isinstance(value, bool) else value


def read_operators_file(path: Path, option: str, example: str) -> Any:
    """Read the YAML that an operator wrote for an option.

    Raises:
        ConfigError: If it cannot be read; the message gives `example`.
    """
    where = f"defense.{option} {path}"
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}. Give a YAML in UTF-8, or null.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"{where} is no YAML{line}; write {example}.") from None
