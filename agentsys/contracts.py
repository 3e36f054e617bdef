"""What a defense, an attack and a benchmark must offer. Structural: nobody has to inherit.

A new one is one Python file with a class of this shape and one YAML whose `_target_` names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, runtime_checkable

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel


@runtime_checkable
class Defense(Protocol):
    """Turns a model and a suite into an agent that resists injections.

    May also have `simulated_roles() -> Mapping[str, SimulatedRole]` if it asks models under roles
    of its own (see agentsys.models.simulated); without it they behave as plain agents there.
    May also have `rehearsed() -> Defense` if it uses a service besides the model: the same defense with
    an offline stand-in, which takes its place wherever the model is simulated.
    """

    name: str

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. Called afresh for every case; may not keep state between cases."""
        ...


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
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """Injection vector -> text for one pair of tasks. Deterministic; called from many threads.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
        """
        ...


class NotInjectable(Exception):
    """The user task never shows an injection vector to an agent that follows its ground truth."""


@runtime_checkable
class Benchmark(Protocol):
    """Suites of tasks in one version."""

    name: str
    version: str
    user_name: str
    """The user's name as attacks address it."""

    def suite_names(self) -> Sequence[str]:
        """The suites of this version, in the benchmark's order."""
        ...

    def suite(self, name: str) -> TaskSuite[Any]:
        """One suite, ready for use: environments load fast and checks see copies.

        Raises:
            ConfigError: If this version has no such suite.
        """
        ...
