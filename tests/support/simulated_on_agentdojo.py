"""Runs the simulated model on AgentDojo's own suites, through AgentDojo's own runner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatMessage

from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.models.chat import ChatModel, Scene
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from agentsys.simulated.playbook_index import Playbook
from agentsys.simulated.simulated_model import SimulatedModel

VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")


@cache
def playbook() -> Playbook:
    return build_playbook(get_suite(VERSION, name) for name in SUITES)


def simulated(susceptibility: float = 1.0) -> SimulatedModel:
    return SimulatedModel(susceptibility=susceptibility).with_playbook(playbook, {})


def agent(model: ChatModel, suite: Any) -> AgentPipeline:
    # AgentDojo's attacks look for a known model's name in the pipeline's name.
    return tool_loop(model, default_system_message(suite), name="local")


@dataclass(frozen=True)
class Outcome:
    utility: bool
    attacked: bool


def injections(suite_name: str, user_task: str, injection_task: str) -> dict[str, str]:
    suite = get_suite(VERSION, suite_name)
    attack = _attack(suite_name)
    texts: dict[str, str] = attack.attack(suite.user_tasks[user_task], suite.injection_tasks[injection_task])
    return texts


@cache
def _attack(suite_name: str) -> ImportantInstructionsAttack:
    suite = get_suite(VERSION, suite_name)
    return ImportantInstructionsAttack(suite, agent(simulated(), suite))


def scene_of(suite_name: str, user_task: str, injection_task: str | None, seed: int = 0) -> Scene:
    attack = "none" if injection_task is None else "important_instructions"
    return Scene(suite_name, user_task, injection_task, attack, seed=seed)


def run_case(
    model: SimulatedModel, suite_name: str, user_task: str, injection_task: str | None = None, seed: int = 0
) -> Outcome:
    """One case, benign without an injection task; `attacked` is False then."""
    suite = get_suite(VERSION, suite_name)
    texts = {} if injection_task is None else injections(suite_name, user_task, injection_task)
    utility, security = suite.run_task_with_pipeline(
        agent(model.for_scene(scene_of(suite_name, user_task, injection_task, seed)), suite),
        suite.user_tasks[user_task],
        None if injection_task is None else suite.injection_tasks[injection_task],
        texts,
        environment=_clean(suite_name) if injection_task is None else None,
    )
    return Outcome(utility, security and injection_task is not None)


def _clean(suite_name: str) -> Any:
    return _loaded(suite_name).model_copy(deep=True)


@cache
def _loaded(suite_name: str) -> Any:
    return get_suite(VERSION, suite_name).load_and_inject_default_environment({})


def conversation(
    model: SimulatedModel, suite_name: str, user_task: str, injection_task: str | None = None, seed: int = 0
) -> list[ChatMessage]:
    """The messages of one case."""
    suite = get_suite(VERSION, suite_name)
    texts = {} if injection_task is None else injections(suite_name, user_task, injection_task)
    task = suite.user_tasks[user_task]
    environment = task.init_environment(suite.load_and_inject_default_environment(texts))
    pipeline = agent(model.for_scene(scene_of(suite_name, user_task, injection_task, seed)), suite)
    *_, messages, _ = pipeline.query(task.PROMPT, FunctionsRuntime(suite.tools), environment)
    return list(messages)


def calls_in(messages: Iterable[ChatMessage]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (call.function, dict(call.args))
        for message in messages
        if message["role"] == "assistant"
        for call in message["tool_calls"] or []
    ]
