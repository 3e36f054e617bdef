"""`guard`: a defense around plain Python functions, or around the tools of an MCP server.

`mcp_tools` gives the tools of a client's MCP session in the form that `guard` takes; `load_defense` and
`load_model` give a shipped defense and model for other pipelines.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import orjson
import typing_extensions
from agentdojo.functions_runtime import Function
from docstring_parser import parse
from pydantic import BaseModel, ConfigDict, Field, create_model

from agentsys.base.config_catalog import load_config
from agentsys.base.json_values import to_json_bytes
from agentsys.contracts import Defense
from agentsys.errors import ConfigError, find_missing_packages, make_not_installed_error
from agentsys.models.build_model import build_stack
from agentsys.models.chat import ChatModel, Scene, ToolSpec, Usage
from agentsys.runs.instantiate import instantiate
from agentsys_plugins.serve.agent_server import build_defended_agent, build_served_model, make_dialogue_writer
from agentsys_plugins.serve.client_tools import ToolFailed, UnusableTool, build_client_functions
from agentsys_plugins.serve.defended_agent import ClientTurn, DefendedAgent, Dialogue

if TYPE_CHECKING:
    from mcp import ClientSession

_PLAIN_TYPES = (str, int, float, bool, BaseModel, type(None))
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class GuardFailed(Exception):
    """A guarded request ended without an answer; the record of the conversation says why."""


@dataclass(frozen=True)
class GuardedAnswer:
    """Result of one request."""

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
    """A Python function as a tool: its arguments from its signature, their words from its docstring."""
    name = getattr(tool, "__name__", "")
    parameters = inspect.signature(tool).parameters.values()
    if inspect.iscoroutinefunction(tool) or not name.isidentifier():
        raise ConfigError(f"Tool {name or tool!r}: give a plain function with a name.")
    if many := [one.name for one in parameters if one.kind not in _NAMED_KINDS]:
        raise ConfigError(f"Tool {name}: argument '{many[0]}' has no name of its own; give each one a name.")
    told = parse(tool.__doc__ or "")
    words = {one.arg_name: one.description for one in told.params}
    fields: dict[str, Any] = {
        one.name: _build_field(name, tool, one, words.get(one.name)) for one in parameters
    }
    described = "\n".join(part for part in (told.short_description, told.long_description) if part)

    def run(**given: Any) -> Any:
        value = tool(**given)
        return value if isinstance(value, _PLAIN_TYPES) else to_json_bytes(value).decode()

    return Function(
        name=name,
        description=described or name,
        parameters=create_model(f"Arguments of {name}", __base__=TypedArguments, **fields),
        dependencies={},
        run=run,
        full_docstring=tool.__doc__ or "",
        return_type=None,
    )


class TypedArguments(BaseModel):
    """Arguments of a Python function, which is called with values of the types that it names."""

    model_config = ConfigDict(protected_namespaces=())

    def model_dump(self, **how: Any) -> dict[str, Any]:
        """The values as AgentDojo's runtime asks for them, to call the function; asked for otherwise, plain data."""
        return (
            super().model_dump(**how)
            if how
            else {name: getattr(self, name) for name in self.__class__.model_fields}
        )


def _build_field(
    name: str, tool: Callable[..., Any], parameter: inspect.Parameter, words: str | None
) -> tuple[Any, Any]:
    """A parameter's type and its default, or a ConfigError that names it."""
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    try:
        is_pydantics = parameter.name.startswith("model_") and hasattr(TypedArguments, parameter.name)
        if parameter.name.startswith("_") or is_pydantics:
            raise ValueError("no argument can have this name here; rename it")
        kind = _read_hint(tool, parameter)
        parts = getattr(kind, "__metadata__", ())
        said = [_read_words(default), *(one if isinstance(one, str) else _read_words(one) for one in parts)]
        kind = Annotated[kind, Field(description=next(filter(None, said), words))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # An argument may be called `schema` or `copy`.
            field: dict[str, Any] = {parameter.name: (kind, default)}
            create_model("Argument", **field).model_json_schema()
    except Exception as error:  # noqa: BLE001 - of pydantic, typing and whatever an annotation holds
        why = f"{type(error).__name__}: {error}".splitlines()[0].partition(". Set ")[0]
        raise ConfigError(
            f"Tool {name}: argument '{parameter.name}' cannot be offered to an agent ({why}); give it a type that"
            " pydantic writes as JSON schema, and that stands where the function is defined."
        ) from None
    return kind, default


def _read_hint(tool: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    if parameter.annotation is inspect.Parameter.empty:
        return Any
    # Alone: what another argument, or the result, is called is nothing to this one.
    holder = type("Holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
    names = getattr(inspect.unwrap(tool), "__globals__", {})
    return _adapt_typed_dicts(get_type_hints(holder, names, include_extras=True)[parameter.name])


def _adapt_typed_dicts(hint: Any) -> Any:
    """A hint with dicts of `typing` as those of `typing_extensions`: before Python 3.12 pydantic takes no others."""
    if sys.version_info >= (3, 12):
        return hint
    if is_typeddict(hint):
        fields = {}
        for key, one in get_type_hints(hint, include_extras=True).items():
            wanted: Any = Required if key in hint.__required_keys__ else NotRequired
            if get_origin(one) in (
                Required,
                NotRequired,
            ):  # `typing` does not see it in a hint that is a text.
                wanted, one = get_origin(one), get_args(one)[0]
            fields[key] = wanted[_adapt_typed_dicts(one)]
        return typing_extensions.TypedDict(hint.__name__, fields)  # type: ignore[operator, unused-ignore]
    origin, args = get_origin(hint), get_args(hint)
    adapted = tuple(map(_adapt_typed_dicts, args)) if origin not in (None, Annotated, Literal) else args
    if origin is Annotated:
        adapted = (_adapt_typed_dicts(args[0]), *args[1:])
    if all(new is old for new, old in zip(adapted, args, strict=True)):
        return hint
    return reduce(or_, adapted) if origin is UnionType else origin[adapted]


def _read_words(said: Any) -> str | None:
    """The description that a default, or a part of `Annotated`, gives."""
    found = getattr(said, "description", None) or getattr(said, "documentation", None)
    return found if isinstance(found, str) else None


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
        # AgentDojo's own runner is no worst case: readers of results obey, and bend no value, unless told to.
        options = {"reader": "literal", **options}
        return build_served_model(
            [f"{'seed' if key == 'seed' else f'model.{key}'}={value}" for key, value in options.items()]
        )
    stack = build_stack(
        {**load_config("model", name), **options},
        cache_dir=None,
        load_model=lambda other: load_config("model", other),
    )
    return stack.for_scene(Scene("", "", None, ""))


_SESSIONS = itertools.count(1)


async def mcp_tools(
    session: ClientSession, *, server: str = "", tell_user: Callable[[str], None] | None = None
) -> list[Function]:
    """The tools that a session's server offers now, to be given to `guard`.

    The server runs them; arguments are checked by its own schemas first. Calls go through the event loop that
    this was awaited in, so a request has to be worked on in another
    thread: `asyncio.to_thread(agent.ask, ...)`.

    Args:
        session: An initialized `mcp.ClientSession`.
        server: A name of yours for the server, by which `defense.pin_tools` knows its tools again; without
            one each session is a server of its own.
        tell_user: Is given what a result has for the user alone (its audience); it is as untrusted as the rest.

    Raises:
        Unavailable: If the package `mcp` is not installed.
        ConfigError: If a tool cannot be offered to an agent.
    """
    if absent := find_missing_packages(["mcp"]):
        raise make_not_installed_error("mcp_tools", absent, "mcp")
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def run(tool: str, args: dict[str, Any]) -> str:
        if threading.get_ident() == thread:
            raise ConfigError(
                "Tools of an MCP session cannot be waited for in its own event loop; write"
                " await asyncio.to_thread(agent.ask, request)."
            )
        result = asyncio.run_coroutine_threadsafe(session.call_tool(tool, args), loop).result()
        told = "\n".join(_write_block(block) for block in result.content if not _is_for(block, "assistant"))
        if told and tell_user is not None:
            tell_user(told)
        return _write_result_text(result)

    tools, owner = await _list_tools(session), server or f"session {next(_SESSIONS)}"
    try:
        return await asyncio.to_thread(build_client_functions, tools, run, owner)
    except UnusableTool as slip:
        raise ConfigError(f"A tool of the MCP server cannot be used: {slip}.") from None


_MOST_PAGES = 1000
"""Pages of a list of tools, which is its server's: one whose cursor never ends would be read for ever."""


async def _list_tools(session: ClientSession) -> Sequence[ToolSpec]:
    """All tools, page after page."""
    from mcp.types import PaginatedRequestParams

    page = await session.list_tools()
    found = page.tools
    for _ in range(_MOST_PAGES):
        if page.next_cursor is None:
            break
        page = await session.list_tools(params=PaginatedRequestParams(cursor=page.next_cursor))
        found += page.tools
    else:
        raise ConfigError(f"The MCP server's list of tools does not end: {_MOST_PAGES} pages were read.")
    return [ToolSpec(one.name, one.description or "", dict(one.input_schema)) for one in found]


def _write_result_text(result: Any) -> str:
    """Write a tool's result as text for the agent: its blocks, and its data where no block has it."""
    shown = [block for block in result.content if _is_for(block, "assistant")]
    data, parts = result.structured_content, [_write_block(block) for block in shown]
    # Servers are asked to send their data as a text, too.
    if data is not None and not any(_is_json_of(block, data) for block in shown):
        parts.append(to_json_bytes(data).decode())
    text = "\n".join(parts)
    if result.is_error:
        raise ToolFailed(text or "the tool failed")
    return text


def _is_for(block: Any, reader: str) -> bool:
    """True if a block is for the `user` or the `assistant`; without an audience it is for both."""
    audience = getattr(block.annotations, "audience", None)
    return not audience or reader in audience


def _is_json_of(block: Any, data: Any) -> bool:
    try:
        return block.type == "text" and bool(orjson.loads(block.text) == data)
    except orjson.JSONDecodeError:
        return False


def _write_block(block: Any) -> str:
    """A block as text: a resource by what it holds, a link by its address, pictures and sounds by their kind."""
    match block.type:
        case "text":
            return str(block.text)
        case "resource":
            held = block.resource
            text = getattr(held, "text", None)
            named = f"[resource {held.uri}{'' if text is not None else f', {held.mime_type}, not read'}]"
            return named if text is None else f"{named}\n{text}"
        case "resource_link":
            told = (f"[link {block.uri}]", block.title or block.name, block.description)
            return " ".join(part for part in told if part)
    return f"[{block.type} {getattr(block, 'mime_type', '')}]"
