"""`LoopParts`: what a defense adds to a plain tool loop, and several of them in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import (
    ElementSequence,
    ModelElement,
    is_element_sequence,
    is_plain_executor,
    named_pipeline,
)
from baselines.border.elements import FilteredTools, CallHistory
from baselines.border.filter import BoundaryFilter


@dataclass(frozen=True)
class LoopParts:
    """A plain tool loop in parts."""

    owner: str
    """The defense's name, for messages."""
    system_message: str
    before: tuple[BasePipelineElement, ...]
    """Between the request and the first turn."""
    first: BasePipelineElement
    """The first turn."""
    before_tools: tuple[BasePipelineElement, ...]
    tools: BasePipelineElement
    """What runs the calls."""
    after_results: tuple[BasePipelineElement, ...]
    turn: BasePipelineElement
    """The turns after results."""
    after: tuple[BasePipelineElement, ...]
    rounds: int

    @property
    def model(self) -> ChatModel | None:
        """The model of the first turn, as the defense may have wrapped it; None if it is not a model's."""
        return self.first.model if isinstance(self.first, ModelElement) else None

    @property
    def plain_tools(self) -> bool:
        """Whether AgentDojo's own executor runs the calls."""
        return is_plain_executor(self.tools)

    def pipeline(self, name: str) -> ElementSequence:
        """The loop put together."""
        elements = [*self.before_tools, self.tools, *self.after_results, self.turn]
        loop = ToolsExecutionLoop(elements, self.rounds)
        system_message = SystemMessage(self.system_message)
        return named_pipeline(name, system_message, InitQuery(), *self.before, self.first, loop, *self.after)


def split_loop(owner: str, pipeline: BasePipelineElement) -> LoopParts | None:
    """The parts of a pipeline; None if it is no plain tool loop, but an agent of another kind."""
    elements = list(pipeline.elements) if is_element_sequence(type(pipeline)) else []
    places = [place for place, one in enumerate(elements) if type(one) is ToolsExecutionLoop]
    starts = (
        len(elements) > 3 and isinstance(elements[0], SystemMessage) and isinstance(elements[1], InitQuery)
    )
    if not starts or len(places) != 1 or places[0] < 3:
        return None
    at, inner = places[0], list(elements[places[0]].elements)
    tools = [place for place, one in enumerate(inner) if _runs_tools(one)]
    if len(tools) != 1 or tools[0] == len(inner) - 1:
        return None
    return LoopParts(
        owner,
        str(elements[0].system_message),
        tuple(elements[2 : at - 1]),
        elements[at - 1],
        tuple(inner[: tools[0]]),
        inner[tools[0]],
        tuple(inner[tools[0] + 1 : -1]),
        inner[-1],
        tuple(elements[at + 1 :]),
        int(elements[at].max_iters),
    )


def _runs_tools(element: BasePipelineElement) -> bool:
    return isinstance(element, ToolsExecutor) or bool(getattr(element, "runs_tools", False))


def merge_loops(parts: Sequence[LoopParts], base_message: str) -> LoopParts:
    """Several loops as one: additions one after the other, in the order of the parts.

    Raises:
        ConfigError: If two of them act at the same place in a way that only one can.
    """
    first, *others = parts
    for other in others:
        first = _join_loops(first, other, base_message)
    return first


def _join_loops(one: LoopParts, other: LoopParts, base_message: str) -> LoopParts:
    if not one.plain_tools and not other.plain_tools:
        raise ConfigError(_clash_text(one, other, "run the agent's calls themselves"))
    if type(one.turn) is not ModelElement and type(other.turn) is not ModelElement:
        raise ConfigError(_clash_text(one, other, "take the agent's turn after a tool result"))
    addition = other.system_message.removeprefix(base_message)
    return LoopParts(
        f"{one.owner}+{other.owner}",
        f"{one.system_message}{addition}",
        (*one.before, *other.before),
        other.first,
        (*one.before_tools, *other.before_tools),
        other.tools if one.plain_tools else one.tools,
        (*one.after_results, *other.after_results),
        one.turn if type(one.turn) is not ModelElement else other.turn,
        (*one.after, *other.after),
        min(one.rounds, other.rounds),
    )


def _clash_text(one: LoopParts, other: LoopParts, doing: str) -> str:
    return f"'{one.owner}' and '{other.owner}' cannot be stacked: both {doing}. Take one of them out."


def add_filters(parts: LoopParts, filters: Sequence[BoundaryFilter], history: CallHistory) -> LoopParts:
    """A loop whose calls and results pass filters; its executor must be the plain one."""
    return replace(parts, tools=FilteredTools(filters, history))
