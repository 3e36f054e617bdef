"""Bases shared by defenses: those with model roles, those that hold others, and AgentDojo's wordings.

What models are told is part of a defense. `wording: package` takes AgentDojo's own sentences for two of its
defenses from the installed package; the presets of this harness speak in their own words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import ClassVar, Literal

from agentdojo.functions_runtime import Function

from agentsys.contracts import Defense, Suite
from agentsys.models.chat import ChatModel
from agentsys.simulated.simulated_role import SimulatedRole

PackageWording = Literal["own", "package"]
"""Whose sentences a defense uses: this project's, or agentdojo's."""


def load_package_tool_filter_question() -> str:
    """Load the question that `tool_filter` asks the model before it begins."""
    from agentdojo.agent_pipeline.agent_pipeline import TOOL_FILTER_PROMPT  # 4 s of imports

    return str(TOOL_FILTER_PROMPT)


def load_package_withheld_notice() -> str:
    """Load the text that replaces a tool result flagged by a detector."""
    from agentdojo.agent_pipeline.pi_detector import PromptInjectionDetector
    from agentdojo.types import text_content_block_from_string

    (block,) = PromptInjectionDetector().transform([text_content_block_from_string("")])
    return str(block["content"])


@cache
def warn_once(logger: logging.Logger, words: str, *names: str) -> None:
    """Log a warning that every case would log again."""
    logger.warning(words, *names)


class RoleDefense(Defense):
    """A defense that asks models under roles of its own."""

    roles: ClassVar[Mapping[str, SimulatedRole]]
    """Role -> how the simulated model plays it."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Give the simulated model's play of this defense's roles."""
        return self.roles


class AgentDefense(RoleDefense):
    """A defense that is an agent of its own, and whose texts no option changes."""

    texts: ClassVar[Mapping[str, str]]
    """Name -> text of every prompt."""

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        return dict(self.texts)


class CompositeDefense(Defense):
    """A defense that holds other defenses, and answers for them."""

    members: tuple[Defense, ...]

    @property
    def reads_tools(self) -> bool:
        """True if a member reads tools."""
        return any(member.reads_tools for member in self.members)

    @reads_tools.setter
    def reads_tools(self, reads: bool) -> None:
        for member in self.members:
            if member.reads_tools is not None:
                member.reads_tools = reads

    def read_tools(self, tools: Sequence[Function], suite: Suite, model: ChatModel) -> Sequence[Function]:
        """Return the tools after each member has read them in turn."""
        for member in self.members:
            if member.reads_tools:
                tools = member.read_tools(tools, suite, model)
        return tools

    @property
    def whole_program(self) -> bool:  # type: ignore[override]
        """True if a member runs a program of its own."""
        return any(member.whole_program for member in self.members)

    def ready(self) -> None:
        """Check that all that the members need is installed.

        Raises:
            Unavailable: Naming what is missing.
        """
        for member in self.members:
            member.ready()

    @property
    def own_roles(self) -> Sequence[str]:  # type: ignore[override]
        """The roles of all members that need a model made for them."""
        return [role for member in self.members for role in member.own_roles]

    def unfit(self, role: str, model: ChatModel) -> str | None:
        """Have the member whose role it is ask its model."""
        return next(member for member in self.members if role in member.own_roles).unfit(role, model)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Return the roles of all members; no two share one."""
        roles: dict[str, SimulatedRole] = {}
        for member in self.members:
            roles |= member.simulated_roles()
        return roles
