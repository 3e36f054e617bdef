"""`guard`: a defense around plain Python functions; `load_defense`, `load_model` for other pipelines."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

from agentdojo.functions_runtime import Function
from docstring_parser import parse
from pydantic import BaseModel, Field, create_model

from agentsys.catalog import load_config
from agentsys.contracts import Defense
from agentsys.errors import ConfigError
from agentsys.front.agent import ClientTurn, DefendedAgent, Dialogue
from agentsys.front.serve import build_defended_agent
from agentsys.front.served_model import build_served_model
from agentsys.front.stored_dialogue import make_dialogue_writer
from agentsys.models.build import build_stack
from agentsys.models.chat import ChatModel, Scene, Usage
from agentsys.runs.instantiate import instantiate
from agentsys.storable import to_json_bytes

_PLAIN_TYPES = (str, int, float, bool, BaseModel, type(None))
_VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)


class GuardFailed(Exception):
    """A guarded request ended without an answer; the record of the conversation says why."""


@dataclass(frozen=True)
class GuardedAnswer:
    """What became of one request."""

    text: str
    """The agent's answer; empty where it said nothing."""
    calls: tuple[tuple[str, dict[str, Any]], ...]
    """The calls that ran, in order: tool and arguments."""
    usage: Usage
    """Tokens of all roles."""
    trace: str
    """Id of the conversation's record in the log folder."""

    def __str__(self) -> str:
        return self.text


class GuardedTools:
    """An agent over Python functions with a defense around it, made by `guard`. Usable from many threads."""

    def __init__(
        self, agent: DefendedAgent, functions: Sequence[Function], told: str, keep: Callable[[Dialogue], None]
    ) -> None:
        self._agent, self._functions, self._told, self._keep = agent, functions, told, keep

    def ask(self, request: str) -> GuardedAnswer:
        """Work on one request of the user, in a conversation of its own.

        Raises:
            ModelError: If a model gave no reply.
            GuardFailed: If the agent ended without an answer otherwise.
        """
        dialogue = Dialogue()
        try:
            self._agent.run_turn(dialogue, ClientTurn(request, self._functions, self._told))
        finally:
            self._keep(dialogue)
        if dialogue.error_kind is not None:
            raise GuardFailed(f"{dialogue.error_kind}: {dialogue.error}")
        calls = tuple((tool, args) for tool, args, _ in dialogue.tracer.executed_calls)
        return GuardedAnswer(dialogue.answer or "", calls, dialogue.usage, dialogue.trace_id)


def guard(
    tools: Iterable[Callable[..., Any] | Function],
    *,
    model: str = "simulated",
    defense: str = "agentsys",
    system_message: str = "",
    settings: Sequence[str] = (),
    logdir: str | os.PathLike[str] = "results/served",
) -> GuardedTools:
    """Put a defense around plain Python functions, or around the tools of an MCP session (`mcp_tools`).

    Args:
        tools: Functions with type hints; their docstrings say what they do. Names are the tools' names. Tools
            that are AgentDojo's `Function`s are taken as they are.
        model: A model, as for a run.
        defense: A defense, as for a run.
        system_message: What the agent is told about itself; empty: nothing.
        settings: Further settings as for a run, e.g. `["defense.validator=off", "seed=1"]`.
        logdir: The folder that each request is stored in, as a record that `agentsys report` shows.

    Raises:
        ConfigError: If a function cannot be a tool, or model or defense cannot be built here.
    """
    functions = [tool if isinstance(tool, Function) else build_python_tool(tool) for tool in tools]
    chosen = [f"model={model}", f"defense={defense}", *settings, f"logdir={os.fspath(logdir)}"]
    agent, cell, store = build_defended_agent(chosen)
    return GuardedTools(agent, functions, system_message, make_dialogue_writer(store, cell))


def build_python_tool(tool: Callable[..., Any]) -> Function:
    """A Python function as a tool: its arguments from its signature, their words from its docstring.

    Raises:
        ConfigError: If it is a coroutine, or takes arguments without names.
    """
    name = getattr(tool, "__name__", "")
    parameters = inspect.signature(tool).parameters.values()
    if inspect.iscoroutinefunction(tool) or not name.isidentifier():
        raise ConfigError(f"Tool {name or tool!r}: give a plain function with a name.")
    if many := [one.name for one in parameters if one.kind in _VARIADIC_KINDS]:
        raise ConfigError(f"Tool {name}: argument '{many[0]}' has no name of its own; give each one a name.")
    hints, told = get_type_hints(tool), parse(tool.__doc__ or "")
    words = {one.arg_name: one.description for one in told.params}
    fields: dict[str, Any] = {}
    for one in parameters:
        default = ... if one.default is inspect.Parameter.empty else one.default
        fields[one.name] = (hints.get(one.name, Any), Field(default=default, description=words.get(one.name)))
    described = "\n".join(part for part in (told.short_description, told.long_description) if part)

    def run(**given: Any) -> Any:
        value = tool(**given)
        return value if isinstance(value, _PLAIN_TYPES) else to_json_bytes(value).decode()

    return Function(
        name=name,
        description=described or name,
        parameters=create_model(f"Arguments of {name}", **fields),
        dependencies={},
        run=run,
        full_docstring=tool.__doc__ or "",
        return_type=None,
    )


def load_defense(name: str, **options: Any) -> Defense:
    """A shipped defense: `load_defense(name).pipeline(model, suite)` is a pipeline of AgentDojo.

    Args:
        name: As in `agentsys list defenses`.
        options: Options in place of those of its YAML.

    Raises:
        ConfigError: If there is no such defense, or an option does not fit.
    """
    defense: Defense = instantiate("defense", {**load_config("defense", name), **options})
    return defense


def load_model(name: str, **options: Any) -> ChatModel:
    """A shipped model, retried as in a run and not cached. `simulated` knows AgentDojo and all roles.

    Args:
        name: As in `agentsys list models`.
        options: Options in place of those of its YAML.

    Raises:
        ConfigError: If there is no such model, an option does not fit, or a key is missing.
    """
    if name == "simulated":
        return build_served_model(version="v1.2.2", options=options)
    stack = build_stack(
        {**load_config("model", name), **options}, cache_dir=None, load_model=lambda other: load_config("model", other)
    )
    return stack.for_scene(Scene("", "", None, ""))
