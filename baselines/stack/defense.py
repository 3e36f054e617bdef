"""`Stack`: several defenses in one agent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.abilities import DescribesItself, NamesPrompts, Rehearsable
from agentsys.contracts import Defense
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.pipeline_elements import default_system_message, named_pipeline
from baselines.border.defense import BoundaryDefense
from baselines.border.elements import CallHistory
from baselines.border.filter import BoundaryFilter
from baselines.border.runtime import FilteredAgent
from baselines.none import NoDefense
from baselines.played import CompositeDefense
from baselines.stack.loop_parts import LoopParts, merge_loops, split_loop, add_filters


class Stack(CompositeDefense):
    """Defenses that act at different places, in one agent.

    Filters at the tool border (firewalls, PromptArmor, detectors, AttriGuard, ...) act in the order of the
    members, on calls as on results, the first of them next to the tools' results. The other members make the
    agent: one of any kind, or several that add to a plain tool loop.

    Args:
        name: The defense's name in configs, records and tables.
        members: The defenses, at least two.

    Raises:
        ConfigError: If there are too few, or one is no defense, or two have one name.
    """

    holds = ("members",)

    def __init__(self, name: str = "stack", *, members: Sequence[Defense]) -> None:
        if isinstance(members, str) or len(members) < 2:
            raise ConfigError(
                f"defense '{name}': members is {members!r}; give a list of two defenses or more."
            )
        for place, member in enumerate(members):
            if not isinstance(member, Defense):
                raise ConfigError(
                    f"defense '{name}': members[{place}] is no defense; give a name or a node with a"
                    " `_target_`."
                )
        names = [member.name for member in members]
        twice = next((one for one in names if names.count(one) > 1), None)
        if twice is not None:
            raise ConfigError(f"defense '{name}': '{twice}' is a member twice; a defense acts once.")
        self.name = name
        self.members = tuple(members)

    @property
    def _filters(self) -> list[BoundaryDefense]:
        return [member for member in self.members if isinstance(member, BoundaryDefense)]

    @property
    def _agents(self) -> list[Defense]:
        return [one for one in self.members if not isinstance(one, BoundaryDefense)] or [NoDefense()]

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case, behind all filters.

        Raises:
            ConfigError: If the members do not fit together.
        """
        filters = [one for member in self._filters for one in member.boundary_filters(model, suite)]
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
            return (add_filters(parts, filters, history) if self._filters else parts).pipeline(name)
        for member in self._filters:
            if member.needs_conversation:
                raise ConfigError(
                    f"'{member.name}' and '{agents[0].name}' cannot be stacked: {member.name} reads the"
                    f" agent's conversation, or ends it, and {agents[0].name} runs its tools out of several,"
                    " or behind a gate of its own. Take one of them out."
                )
        agent = base if parts is None or len(agents) == 1 else parts.pipeline(name)
        return named_pipeline(name, FilteredAgent(agent, filters))

    def _merge_agents(self, model: ChatModel, suite: TaskSuite[Any], first: LoopParts | None) -> LoopParts:
        """One loop of all agents. Each is built over the model as the one before it has wrapped it."""
        found: list[LoopParts] = []
        wrapped = model
        for place, agent in enumerate(self._agents):
            parts = first if place == 0 else split_loop(agent.name, agent.pipeline(wrapped, suite))
            if parts is None:
                others = ", ".join(f"'{one.name}'" for one in self._agents if one is not agent)
                raise ConfigError(
                    f"'{agent.name}' and {others} cannot be stacked: {agent.name} is an agent of its own, and"
                    " there can be one. Filters of calls and results can be put around it."
                )
            wrapped = parts.model or wrapped
            found.append(parts)
        return merge_loops(found, default_system_message(suite))

    def ready(self) -> None:
        """Look whether all that the members need is here, and whether they fit together.

        Raises:
            Unavailable: Naming what is missing.
            ConfigError: If they do not fit together.
        """
        super().ready()
        self._build_pipeline(_ProbeModel(), TaskSuite("probe", TaskEnvironment, []), [])

    def rehearsed(self) -> Stack:
        """With the offline stand-ins of its members."""
        found = [one.rehearsed() if isinstance(one, Rehearsable) else one for one in self.members]
        return Stack(self.name, members=found)

    def description(self) -> str:
        """Which defenses act in which order, each in a few sentences of its own."""
        names = ", ".join(member.name for member in self.members)
        filters = ", ".join(member.name for member in self._filters) or "none"
        share = max(1, 8 // len(self.members))
        told = [
            f"Of {member.name}: {_first_sentences(member, share)}"
            for member in self.members
            if isinstance(member, DescribesItself)
        ]
        order = f"Filters of calls and results act in this order: {filters}."
        return " ".join([f"A stack of {len(self.members)} defenses: {names}.", *told, order])

    def prompts(self) -> dict[str, str]:
        """Every text of every member, by its name and the text's."""
        return {
            f"{member.name}.{name}": text
            for member in self.members
            if isinstance(member, NamesPrompts)
            for name, text in member.prompts().items()
        }


def _first_sentences(member: DescribesItself, share: int) -> str:
    return " ".join(re.split(r"(?<=\.) (?=[A-Z])", member.description())[:share])


class _ProbeModel:
    """Stands for a model where a pipeline is only looked at."""

    name = "probe"

    def complete(self, request: ChatRequest) -> ChatReply:
        raise AssertionError("a pipeline that is only looked at asks no model")
