"""`AgentSys`: the defense, its presets and its ablations, as one class with one YAML each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.types import ChatMessage

from agentsys.contracts import Suite
from agentsys.defense.delegation import serve_turn
from agentsys.defense.description import describe_variant
from agentsys.defense.no_isolation import GuardedAgent
from agentsys.defense.privileges import Labels, Privilege, get_privilege_store
from agentsys.defense.prompts import MAIN, collect_prompts
from agentsys.defense.session import AgentSession, SessionElement
from agentsys.defense.settings import AgentSysSettings
from agentsys.defense.simulated.roles import SIMULATED_ROLES
from agentsys.defense.tool_turn import ask_next_message
from agentsys.defense.worker import CallingAgent
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys.models.loop import default_system_message, named_pipeline
from agentsys.models.simulated.role import SimulatedRole


class AgentSys:
    """Hierarchical isolation with a return gate, a validator and a sanitizer (the paper's section 5).

    Args:
        name: The defense's name in configs, records and tables.
        privileges_dir: Folder in which the tools' labels are kept. None keeps them in memory; a run puts
            them beside its records instead.
        tool_labels: A YAML with an operator's own labels of tools, which go before a model's; None: no such.
        options: See `agentsys.defense.settings.AgentSysSettings`; without any, the paper's system.

    Raises:
        ConfigError: If an option has a value it cannot have, options contradict each other, or the labels
            cannot be read.
    """

    keeps: ClassVar[Mapping[str, str]] = {"privileges_dir": "privileges"}

    def __init__(
        self,
        name: str = "agentsys",
        *,
        privileges_dir: str | None = None,
        tool_labels: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.corrections = read_corrections(None if tool_labels is None else Path(tool_labels))
        self.privileges_dir = None if privileges_dir is None else Path(privileges_dir)
        self.settings = AgentSysSettings.from_options(options)

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """The agent for one case, as a pipeline that AgentDojo's own benchmark runs and logs."""
        message = default_system_message(suite)
        book = get_privilege_store(self.privileges_dir, self.corrections)
        agent: BasePipelineElement
        if self.settings.isolation:
            message = f"{message}\n\n{MAIN}"
            agent = MainAgent(model, self.settings, book)
        else:
            agent = GuardedAgent(model, self.settings, book)
        return named_pipeline(f"{model.name}-{self.name}", SystemMessage(message), InitQuery(), agent)

    def description(self) -> str:
        """Say what is kept apart, what crosses and what is checked, as this variant is set."""
        return describe_variant(self.settings)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Give the simulated model's play of worker, validator, sanitizer and the sorting of tools."""
        return SIMULATED_ROLES

    def prompts(self) -> dict[str, str]:
        """Every text this variant says to a model, by name."""
        return collect_prompts(self.settings)


_LABEL_WORDS = {label.value: label for label in Privilege}


def read_corrections(path: Path | None) -> Labels:
    """An operator's own labels in a YAML: a mapping from tools' names to `query` or `command`.

    Raises:
        ConfigError: If it cannot be read or says anything else.
    """
    if path is None:
        return {}
    where = f"defense.tool_labels {path}"
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}. Give a YAML in UTF-8, or null.") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"{where} is no YAML{line}; write a line for each tool: NAME: query.") from None
    if not isinstance(stored, dict) or not stored:
        raise ConfigError(
            f"{where} has no labels; write a line for each tool: NAME: query, or NAME: command."
        )
    for tool, word in stored.items():
        if not isinstance(tool, str) or not isinstance(word, str) or word not in _LABEL_WORDS:
            raise ConfigError(f"{where}: tool {tool!r} is {word!r}; write query or command.")
    return {tool: _LABEL_WORDS[word] for tool, word in stored.items()}


MAIN_ROLE = "main"


class MainAgent(SessionElement):
    """The loop of the isolated main agent, as an element for AgentDojo's pipelines."""

    name = "agentsys_main"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns whether the model stopped by itself.

        Bounded like AgentDojo's loop, so that variants and baselines are compared under one limit: a first
        message, then at most `main_steps` rounds of calls, each followed by one more message.
        """
        agent = CallingAgent()
        for step in range(session.settings.main_steps + 1):
            message = ask_next_message(session.main_model, MAIN_ROLE, context, session.tools)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            context += serve_turn(session, message["tool_calls"], agent)
        return False
