"""`adapted_suite`: a suite of AgentDyn as the harness runs it: fast, repeatable, scored as in the fork."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.agentdyn.checkout import SYSTEM_MESSAGES, Checkout
from agentsys.benchmarks.agentdyn.modules import find_fork_tool_modules
from agentsys.benchmarks.agentdyn.ways import make_way_finder
from agentsys.benchmarks.case_random import install_case_random
from agentsys.benchmarks.clock import install_case_clocks
from agentsys.benchmarks.loading.environment import EnvironmentLoader, Injection
from agentsys.benchmarks.scoring import check_on_copies
from agentsys.benchmarks.set_order import keep_set_order
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.element import LoopState, LoopStep


def adapt_fork_suite(suite: Suite, checkout: Checkout, injection: Injection, *, last_assistant: bool) -> Suite:
    """A copy of a checkout's suite; of the suite itself nothing changes but what its tools take for the time.

    Args:
        suite: A suite from `load_suites`.
        checkout: The checkout it is of.
        injection: How injected text gets in.
        last_assistant: Whether the answer is the last assistant message, wherever it stands.
    """
    loader = _build_loader(suite, checkout, injection)
    modules = find_fork_tool_modules(checkout)
    install_case_clocks(suite, modules)
    keep_set_order(suite)
    install_case_random(modules)
    copied = copy.copy(suite)
    vars(copied).update(
        injection=injection,
        load_and_inject_default_environment=loader.load,
        get_injection_vector_defaults=loader.get_defaults,
        _check_task_result=check_on_copies(copied._check_task_result),
        system_message=read_system_message(checkout),
        draws_at_random=True,
    )
    vars(copied).update(way=make_way_finder(copied))
    if last_assistant:
        run = copied.run_task_with_pipeline

        def scored(agent_pipeline: BasePipelineElement, *args: Any, **options: Any) -> tuple[bool, bool]:
            scores: tuple[bool, bool] = run(EndOnAnswerStep(agent_pipeline), *args, **options)
            return scores

        vars(copied).update(run_task_with_pipeline=scored, last_assistant=True)
    return copied


def _build_loader(suite: Suite, checkout: Checkout, injection: Injection) -> EnvironmentLoader:
    try:
        loader = EnvironmentLoader(suite, injection)
        loader.get_defaults()
        return loader
    except (OSError, ValueError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())[:200]
        folder = checkout.data_path(suite.name)
        raise ConfigError(f"The data in {folder} cannot be read ({said}); take another checkout.") from None


def read_system_message(checkout: Checkout) -> str:
    """The fork's own: it also tells the agent not to ask for confirmation.

    Raises:
        ConfigError: If the checkout has none.
    """
    try:
        return str(yaml.safe_load(checkout.files[SYSTEM_MESSAGES])["default"])
    except (KeyError, TypeError, ValueError, yaml.YAMLError):
        raise ConfigError(
            f"{checkout.package / SYSTEM_MESSAGES} has no message named default; take another checkout."
        ) from None


class EndOnAnswerStep(LoopStep):
    """Ends conversations on the last assistant message, which is where the fork takes the answer from.

    AgentDojo refuses to score a conversation that ends on anything else. What the pipeline returned is
    stored as it is: only the scorer sees the repetition, which makes no calls.
    """

    def __init__(self, pipeline: BasePipelineElement) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name

    def step(self, at: LoopState) -> LoopState:
        """One run.

        Raises:
            Exception: What the pipeline raises; the messages that an abort carries end in the same way.
        """
        try:
            after = at.run_element(self.pipeline)
        except AbortAgentError as aborted:
            aborted.messages = end_on_answer(aborted.messages)
            raise
        return replace(after, messages=end_on_answer(after.messages))


def end_on_answer(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The messages; behind others than the assistant's its last one once more, without calls."""
    last = next((message for message in reversed(messages) if message["role"] == "assistant"), None)
    if last is None or messages[-1]["role"] == "assistant":
        return list(messages)
    return [*messages, ChatAssistantMessage(role="assistant", content=last["content"], tool_calls=None)]
