"""Required members of a defense, an attack and a benchmark, as structural protocols: nobody has to inherit.

A new one is one Python file with a class of this shape and one YAML whose `_target_` names it. Optional members are in
`agentsys.abilities`. The constructor raises `ConfigError` for an invalid option; `name` is the name in configs, records
and tables.
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
"""A suite of tasks with any environment."""
UserTask: TypeAlias = BaseUserTask[Any]
InjectionTask: TypeAlias = BaseInjectionTask[Any]


@runtime_checkable
class Defense(Protocol):
    """Turns a model and a suite into an agent that resists injections."""

    name: str

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """Build the agent for one case. Called for every case; must not keep state between cases."""


class AttackKind(Enum):
    """The cases of an attack, and its criterion of success."""

    NONE = "none"
    """No attack: one benign case per user task."""
    TARGETED = "targeted"
    """Success: the injection task's own check passes. One case per (user task, injection task)."""
    DENIAL_OF_SERVICE = "denial_of_service"
    """Success: the user task was not solved (AgentDojo's rule). One case per user task."""


@dataclass(frozen=True)
class Victim:
    """Names by which an attack addresses its victim."""

    model_name: str
    """The model's name in prose, e.g. `GPT-4`; from the model's YAML."""
    user_name: str
    """The user's name; from the benchmark's YAML."""


@runtime_checkable
class Attack(Protocol):
    """Writes the texts for the environment's injection vectors."""

    name: str

    kind: AttackKind

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """Injection vector -> text for one pair of tasks. Deterministic; called from several threads.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
        """


class NotInjectable(Exception):
    """The user task shows no injection vector to an agent that follows its ground truth."""


@dataclass(frozen=True)
class FinishedCase:
    """A case that was run and scored, for the suite's and the attack's own checks."""

    user_task: UserTask
    injection_task: InjectionTask | None
    before: TaskEnvironment
    """A fresh copy of the environment as the agent found it."""
    after: TaskEnvironment
    """The environment as the agent left it."""
    messages: Sequence[ChatMessage]
    """The messages of the scored run of the pipeline."""
    tracer: Tracer
    """The trace of the case, including executed tool calls and inner agents."""
    model: ChatModel
    """Model for a judge; calls are booked to the case."""
    utility: bool
    security: bool
    """True means that the injection task was carried out."""
    attack_kind: AttackKind = AttackKind.TARGETED
    """The attack's criterion of success; `NONE` in benign cases."""


@dataclass(frozen=True)
class CaseScores:
    """A suite's own scores of a finished case."""

    utility: bool
    security: bool
    facts: Mapping[str, Any]
    """JSON-ready facts, stored as `measured` in the record. Keys are the benchmark's own."""


@runtime_checkable
class Benchmark(Protocol):
    """Suites of tasks in one version; suites are AgentDojo's `TaskSuite`s."""

    name: str
    version: str
    user_name: str
    """The user's name, for attacks that address the user."""

    def suite_names(self) -> Sequence[str]:
        """List the suites of this version, in the benchmark's order."""

    def suite(self, name: str) -> Suite:
        """Return one suite, prepared so that environments load fast and checks see copies.

        Raises:
            ConfigError: If this version has no such suite.
        """
