"""`Stack`: several defenses at once in one agent, each at its place in the tool loop.

Filters at the tool border can be put around any agent; defenses that add to a plain tool loop can share one.
What cannot be combined is refused with the reason. See docs/baselines/stacks.md. `LoopParts` are a plain tool
loop taken apart: what members add before the first turn, around the tools and behind the results is put together
in their order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.contracts import Defense
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.pipeline_elements import (
    ElementSequence,
    ModelElement,
    default_system_message,
    is_element_sequence,
    is_plain_executor,
    make_named_pipeline,
)
from baselines.defense_bases import CompositeDefense
from baselines.none import NoDefense
from baselines.tool_boundary.boundary_filter import (
    BoundaryDefense,
    BoundaryFilter,
    CallHistory,
    FilteredAgent,
    FilteredTools,
)


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
    """The element that runs the calls."""
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
        """True if AgentDojo's own executor runs the calls."""
        return is_plain_executor(self.tools)

    def pipeline(self, name: str) -> ElementSequence:
        """Build the loop."""
        elements = [*self.before_tools, self.tools, *self.after_results, self.turn]
        loop = ToolsExecutionLoop(elements, self.rounds)
        system_message = SystemMessage(self.system_message)
        return make_named_pipeline(
            name, system_message, InitQuery(), *self.before, self.first, loop, *self.after
        )


def split_loop(owner: str, pipeline: BasePipelineElement) -> LoopParts | None:
    """Split a pipeline into its parts; None if it is no plain tool loop, but an agent of another kind."""
    elements = list(pipeline.elements) if is_element_sequence(type(pipeline)) else []
    loops = [at for at, element in enumerate(elements) if type(element) is ToolsExecutionLoop]
    if len(loops) != 1 or loops[0] < 3:
        return None
    message, query, *before, first = elements[: loops[0]]
    loop, after = elements[loops[0]], elements[loops[0] + 1 :]
    *inner, turn = loop.elements
    runners = [
        at
        for at, e in enumerate(loop.elements)
        if isinstance(e, ToolsExecutor) or getattr(e, "runs_tools", False)
    ]
    starts = isinstance(message, SystemMessage) and isinstance(query, InitQuery)
    if not starts or len(runners) != 1 or runners[0] == len(inner):
        return None
    return LoopParts(
        owner,
        str(message.system_message),
        tuple(before),
        first,
        tuple(inner[: runners[0]]),
        inner[runners[0]],
        tuple(inner[runners[0] + 1 :]),
        turn,
        tuple(after),
        int(loop.max_iters),
    )


def _join_loops(first: LoopParts, other: LoopParts, base_message: str) -> LoopParts:
    """Both loops as one: additions one after the other.

    Raises:
        ConfigError: If they act at the same place in a way that only one can.
    """
    if not first.plain_tools and not other.plain_tools:
        raise ConfigError(_format_clash(first, other, "run the agent's calls themselves"))
    if type(first.turn) is not ModelElement and type(other.turn) is not ModelElement:
        raise ConfigError(_format_clash(first, other, "take the agent's turn after a tool result"))
    addition = other.system_message.removeprefix(base_message)
    return LoopParts(
        f"{first.owner}+{other.owner}",
        f"{first.system_message}{addition}",
        (*first.before, *other.before),
        other.first,
        (*first.before_tools, *other.before_tools),
        other.tools if first.plain_tools else first.tools,
        (*first.after_results, *other.after_results),
        first.turn if type(first.turn) is not ModelElement else other.turn,
        (*first.after, *other.after),
        min(first.rounds, other.rounds),
    )


def _format_clash(first: LoopParts, other: LoopParts, doing: str) -> str:
    return f"'{first.owner}' and '{other.owner}' cannot be stacked: both {doing}. Take one of them out."


class Stack(CompositeDefense):
    """Defenses that act at different places, in one agent.

    Filters at the tool border (firewalls, PromptArmor, detectors, AttriGuard, ...) act in the order of the
    members, on calls as on results, the first of them next to the tools' results. The other members make the
    agent: one of any kind, or several that add to a plain tool loop.

    Args:
        members: The defenses, at least two.
    """

    holds = ("members",)

    def __init__(self, name: str = "stack", *, members: Sequence[Defense]) -> None:
        if isinstance(members, str) or len(members) < 2:
            raise ConfigError(
                f"defense '{name}': members is {members!r}; give a list of two defenses or more."
            )
        for index, member in enumerate(members):
            if not isinstance(member, Defense):
                what = f"members[{index}] is no defense"
                raise ConfigError(f"defense '{name}': {what}; give a name or a node with a `_target_`.")
        names = [member.name for member in members]
        for twice in names:
            if names.count(twice) > 1:
                raise ConfigError(f"defense '{name}': '{twice}' is a member twice; a defense acts once.")
        self.name = name
        self.members = tuple(members)

    @property
    def _filters(self) -> list[BoundaryDefense]:
        return [member for member in self.members if isinstance(member, BoundaryDefense)]

    @property
    def _agents(self) -> list[Defense]:
        return [member for member in self.members if not isinstance(member, BoundaryDefense)] or [NoDefense()]

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case, behind all filters."""
        filters = [part for member in self._filters for part in member.boundary_filters(model, suite)]
        return self._build_pipeline(model, suite, filters)

    def _build_pipeline(
        self, model: ChatModel, suite: TaskSuite[Any], filters: Sequence[BoundaryFilter]
    ) -> BasePipelineElement:
        name = f"{model.name}-{self.name}"
        agents = self._agents
        base = agents[0].pipeline(model, suite)
        parts = split_loop(agents[0].name, base)
        if len(agents) > 1:
            parts = self._merge_agents(model, suite, parts)
        if parts is not None and (parts.plain_tools or not self._filters):
            shown = {member.history for member in self._filters}
            history: CallHistory = "executed" if "executed" in shown else "proposed"
            filtered = replace(parts, tools=FilteredTools(filters, history))
            return (filtered if self._filters else parts).pipeline(name)
        for member in self._filters:
            if member.needs_conversation:
                raise ConfigError(
                    f"'{member.name}' and '{agents[0].name}' cannot be stacked: {member.name} reads the"
                    f" agent's conversation, or ends it, and {agents[0].name} runs its tools out of several,"
                    " or behind a gate of its own. Take one of them out."
                )
        agent = base if parts is None or len(agents) == 1 else parts.pipeline(name)
        return make_named_pipeline(name, FilteredAgent(agent, filters))

    def _merge_agents(self, model: ChatModel, suite: TaskSuite[Any], first: LoopParts | None) -> LoopParts:
        """Merge all agents into one loop. Each is built over the model as wrapped by the one before it."""
        loops: list[LoopParts] = []
        wrapped = model
        for index, agent in enumerate(self._agents):
            parts = first if index == 0 else split_loop(agent.name, agent.pipeline(wrapped, suite))
            if parts is None:
                others = ", ".join(f"'{member.name}'" for member in self._agents if member is not agent)
                raise ConfigError(
                    f"'{agent.name}' and {others} cannot be stacked: {agent.name} is an agent of its own, and"
                    " there can be one. Filters of calls and results can be put around it."
                )
            wrapped = parts.model or wrapped
            loops.append(parts)
        base_message = default_system_message(suite)
        return reduce(lambda joined, loop: _join_loops(joined, loop, base_message), loops)

    def ready(self) -> None:
        """Check that the members' needs are installed, and that the members fit together.

        Raises:
            ConfigError: If they do not fit together.
        """
        super().ready()
        self._build_pipeline(_ProbeModel(), TaskSuite("probe", TaskEnvironment, []), [])

    def rehearsed(self) -> Stack:
        """Return the stack with the offline stand-ins of its members."""
        return Stack(self.name, members=[member.rehearsed() for member in self.members])

    def description(self) -> str:
        """Describe which defenses act in which order, each in its own words."""
        names = ", ".join(member.name for member in self.members)
        filters = ", ".join(member.name for member in self._filters) or "none"
        most = max(1, 8 // len(self.members))
        sentences = [f"A stack of {len(self.members)} defenses: {names}."]
        for member in self.members:
            if description := member.description():
                first = re.split(r"(?<=\.) (?=[A-Z])", description)[:most]
                sentences += [f"Of {member.name}: {first[0]}", *first[1:]]
        return " ".join([*sentences, f"Filters of calls and results act in this order: {filters}."])

    def prompts(self) -> dict[str, str]:
        """Return every text of every member, by the member's name and the text's."""
        return {
            f"{member.name}.{name}": text
            for member in self.members
            for name, text in member.prompts().items()
        }


class _ProbeModel:
    """Replaces the model while a pipeline is only inspected."""

    name = "probe"

    def complete(self, request: ChatRequest) -> ChatReply:
        raise AssertionError("a pipeline that is only looked at asks no model")
