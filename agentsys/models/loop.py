"""The plain tool loop most defenses are variations of, with places to hook in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, load_system_message
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, tool_result_to_str
from agentdojo.logging import Logger

from agentsys.models.chat import ChatModel
from agentsys.models.element import LoopState, LoopStep, ModelElement
from agentsys.models.tools_element import ToolsElement

MAX_ROUNDS = 15
"""AgentDojo's default bound on tool rounds."""


def default_system_message(suite: object) -> str:
    """The system message agents of this suite start from: the suite's own, else AgentDojo's default."""
    own = getattr(suite, "system_message", None)
    return own if isinstance(own, str) else str(load_system_message(None))


class ElementSequence(LoopStep):
    """Elements that are run one after the other, as AgentDojo's `AgentPipeline` runs them.

    That one hands one and the same `extra_args` to every request that comes without; here each has its own.

    Args:
        elements: The elements, in order.
        name: What AgentDojo's own runner would use for folders.
    """

    def __init__(self, elements: Sequence[BasePipelineElement], name: str | None) -> None:
        self.elements = list(elements)
        self.name = name

    def step(self, at: LoopState) -> LoopState:
        """What the elements make of it; AgentDojo's logger is told after each."""
        logger = Logger().get()
        for element in self.elements:
            at = at.run_element(element)
            logger.log(at.messages)
        return at


def is_element_sequence(kind: type) -> bool:
    """Whether a class is the one that runs elements in order: ours or AgentDojo's."""
    return kind in (ElementSequence, AgentPipeline)


def tool_loop(
    model: ChatModel,
    system_message: str,
    *,
    name: str,
    before: Sequence[BasePipelineElement] = (),
    before_tools: Sequence[BasePipelineElement] = (),
    after_results: Sequence[BasePipelineElement] = (),
    after: Sequence[BasePipelineElement] = (),
    tools: BasePipelineElement | None = None,
    formatter: Callable[[Any], str] = tool_result_to_str,
    turn: BasePipelineElement | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> ElementSequence:
    """A plain agent: system message, user query, then model and tools in turn.

    Args:
        model: The model behind the agent.
        system_message: Its system message.
        name: The pipeline's name, as AgentDojo's own runner would use it for folders.
        before: Elements between the user query and the first model call.
        before_tools: Elements between each reply with tool calls and their execution.
        after_results: Elements between each round of tool results and the next model call.
        after: Elements behind the final answer.
        tools: The element that runs the calls of a reply; None: AgentDojo's executor.
        formatter: Turns a tool's value into the text of the tool message, where `tools` is None.
        turn: The element that takes the agent's turn after results; None: the model.
        max_rounds: Most rounds of tool calls.
    """
    element = ModelElement(model)
    run = ToolsElement(formatter) if tools is None else tools
    loop = ToolsExecutionLoop([*before_tools, run, *after_results, turn or element], max_rounds)
    return named_pipeline(name, SystemMessage(system_message), InitQuery(), *before, element, loop, *after)


def named_pipeline(name: str, *elements: BasePipelineElement) -> ElementSequence:
    """Elements in a row, under a name."""
    return ElementSequence(elements, name)
