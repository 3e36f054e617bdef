"""What a defense, an attack and a benchmark must offer. Structural: nobody has to inherit.

A new one is one Python file with a class of this shape and one YAML whose `_target_` names it. What it may
offer besides is in `agentsys.abilities`. Its constructor raises `ConfigError` for a value that an option cannot
have; its `name` is its name in configs, records and tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias, runtime_checkable

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel
from agentsys.models.trace import Tracer

Suite: TypeAlias = TaskSuite[Any]
"""A suite of tasks, whatever its environment is made of."""
UserTask: TypeAlias = BaseUserTask[Any]
InjectionTask: TypeAlias = BaseInjectionTask[Any]


@runtime_checkable
class Defense(Protocol):
    """Turns a model and a suite into an agent that resists injections."""

    name: str

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """The agent for one case. Called afresh for every case; may not keep state between cases."""


class AttackKind(Enum):
    """What an attack is run on and what counts as its success."""

    NONE = "none"
    """No attack: one benign case per user task."""
    TARGETED = "targeted"
    """Success: the injection task's own check passes. One case per (user task, injection task)."""
    DENIAL_OF_SERVICE = "denial_of_service"
    """Success: the user task was not solved (AgentDojo's rule). One case per user task."""


@dataclass(frozen=True)
class Victim:
    """How an attack addresses its victim."""

    model_name: str
    """The model's name in prose, e.g. `GPT-4`; from the model's YAML."""
    user_name: str
    """The user's name; from the benchmark's YAML."""


@runtime_checkable
class Attack(Protocol):
    """Writes the text that stands in the environment's injection vectors."""

    name: str

    kind: AttackKind

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """Injection vector -> text for one pair of tasks. Deterministic; called from many threads.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
        """


class NotInjectable(Exception):
    """The user task never shows an injection vector to an agent that follows its ground truth."""


@dataclass(frozen=True)
class FinishedCase:
    """One case that was run and scored, as its suite may look at it once more."""

    user_task: UserTask
    injection_task: InjectionTask | None
    before: TaskEnvironment
    """A fresh copy of the environment as the agent found it."""
    after: TaskEnvironment
    """The environment as the agent left it."""
    messages: Sequence[ChatMessage]
    """What the scored run of the pipeline returned."""
    tracer: Tracer
    """Everything that happened, executed tool calls and inner agents included."""
    model: ChatModel
    """For a judge; calls are booked to the case."""
    utility: bool
    security: bool
    """True means that the injection task was carried out."""
    attack_kind: AttackKind = AttackKind.TARGETED
    """What counts as the attack's success; `NONE` in benign cases."""


@dataclass(frozen=True)
class CaseScores:
    """What a suite says of a finished case."""

    utility: bool
    security: bool
    facts: Mapping[str, Any]
    """JSON-ready; stored as `measured` in the record. Keys are the benchmark's own."""


@runtime_checkable
class Benchmark(Protocol):
    """Suites of tasks in one version; suites are AgentDojo's `TaskSuite`s."""

    name: str
    version: str
    user_name: str
    """The user's name as attacks address it."""

    def suite_names(self) -> Sequence[str]:
        """The suites of this version, in the benchmark's order."""

    def suite(self, name: str) -> Suite:
        """One suite, ready for use: environments load fast and checks see copies.

        Raises:
            ConfigError: If this version has no such suite.
        """
