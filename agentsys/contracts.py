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
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatModel
from agentsys.models.trace import Tracer


@runtime_checkable
class Defense(Protocol):
    """Turns a model and a suite into an agent that resists injections.

    May also have `simulated_roles() -> Mapping[str, SimulatedRole]` if it asks models under roles
    of its own (see agentsys.models.simulated); without it they behave as plain agents there.
    May also have `rehearsed() -> Defense` if it uses a service besides the model: the same defense with
    an offline stand-in, which takes its place wherever the model is simulated.
    May also describe itself (`Described`): to attackers that may know it, in docs and in listings.
    May also be a `ChecksItsNeeds`: what is missing is then said before the first case.
    May also say `whole_program = True` if it runs a program of its own from the request to the answer:
    then it is refused on suites whose conversation has several turns.
    """

    name: str

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. Called afresh for every case; may not keep state between cases."""
        ...


@runtime_checkable
class Described(Protocol):
    """A defense that says what it does, as it is set: two presets of one class may differ here."""

    def description(self) -> str:
        """Say in 5 to 10 sentences of plain English what the defense does.

        What is kept apart from what, what crosses, which checks there are, with which settings. An
        attacker may be told this, so it holds no secret.
        """
        ...


@runtime_checkable
class NamesTasks(Protocol):
    """An attack that was told tasks by name, e.g. in a file of texts: a name may be misspelled."""

    def unmatched(self, benchmark: Benchmark) -> Sequence[str]:
        """Names of tasks that the benchmark does not have, each as one line would show it."""
        ...


@runtime_checkable
class ChecksItsNeeds(Protocol):
    """A defense that needs more than a model: packages of an extra, a key, a service."""

    def ready(self) -> None:
        """Look whether all of it is here. Quick; called before the first case, and in a dry run.

        Raises:
            Unavailable: Naming what is missing.
        """
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
    """Writes the text that stands in the environment's injection vectors.

    May also have `applies_to(suite, user_task, injection_task) -> bool`: pairs for which it is False
    are left out of a plan and counted; a `left_out` says why, between the attack's name and the number
    of pairs (`has nowhere to write in`). May also have `simulated_roles()`, like a defense.
    """

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


@dataclass(frozen=True)
class FinishedCase:
    """One case that was run and scored, as its suite may look at it once more."""

    user_task: BaseUserTask[Any]
    injection_task: BaseInjectionTask[Any] | None
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
class Measured:
    """What a suite says of a finished case."""

    utility: bool
    security: bool
    facts: Mapping[str, Any]
    """JSON-ready; stored as `measured` in the record. Keys are the benchmark's own."""


@runtime_checkable
class Benchmark(Protocol):
    """Suites of tasks in one version.

    Its suites are AgentDojo's `TaskSuite`s, which may offer more:

    * `system_message`: the text agents of this suite start from;
    * `driven(model, user_task, injection_task) -> ChatModel`: the model as it takes part in this
      benchmark's conversation, where that is not one user turn with tools until done; the defense
      gets it in place of the model, once per case;
    * `several_turns`: True where that conversation is led by turns (see `Defense`, `whole_program`);
    * `measured(finished: FinishedCase) -> Measured`: the final scores, with facts of its own;
    * `without_vectors`: ids of user tasks that can show no injection, and so are not attacked.

    May also have `simulated_roles()`, like a defense.
    """

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
