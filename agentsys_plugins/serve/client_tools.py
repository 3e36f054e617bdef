"""Tools of a client as AgentDojo's functions: checked by the client's own JSON schema, run by the client."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Self

import orjson
from agentdojo.functions_runtime import Function
from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    create_model,
    model_validator,
)

from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.models.chat import ToolSpec
from agentsys.models.tool_schema import list_arguments
from agentsys.models.untrusted import ForeignFunction
from agentsys_plugins.serve.served_model.json_check import find_bad_schema, find_misfit

RunClientTool = Callable[[str, dict[str, Any]], Any]
"""(tool, arguments that were given) -> what the client's tool returned. Raises `ToolFailed`."""

_MAX_CACHED_TOOLS = 4096
"""Tools whose parameters are remembered: a client sends the same ones with every request."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME = 64
"""Characters of a tool's name: what OpenAI, Anthropic and Google take."""


class UnusableTool(ValueError):
    """A client's tool cannot be offered to an agent; the message says why."""


class ToolFailed(Exception):
    """A client's tool failed, in the client's words."""


class _Absent:
    """Stands for an argument that was not given; one object of it does."""

    def __repr__(self) -> str:
        return "..."  # Where a defense writes a tool down as a function, as CaMeL does.


ABSENT = _Absent()


class ClientRuntime(TracedRuntime):
    """Runs a client's tools. Their errors are passed on in the client's words, without a Python class."""

    def run_function(self, *asked: Any, **more: Any) -> tuple[Any, str | None]:
        """Run a tool as the base class does."""
        value, error = super().run_function(*asked, **more)
        return value, None if error is None else error.removeprefix(f"{ToolFailed.__name__}: ")


class SchemaArguments(BaseModel):
    """Arguments of a foreign tool: checked by its own schema, and handed over as they came.

    Fields are those arguments that Python has names for; the others are taken as well.
    """

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True, protected_namespaces=())
    shown_schema: ClassVar[dict[str, Any]] = {}
    """As models are shown it."""
    checked_schema: ClassVar[bytes] = b"{}"
    """As its owner wrote it."""
    owner: ClassVar[str] = ""
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, values: Any, read: ModelWrapValidatorHandler[Self]) -> Self:
        if wrong := find_misfit(cls.checked_schema, values, cls.owner):
            raise ValueError(wrong)
        checked = read(values)
        checked._given = dict(values)
        return checked

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The arguments that were given."""
        return dict(self._given)

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        """The schema as its owner wrote it."""
        return cls.shown_schema


def build_client_functions(tools: Sequence[ToolSpec], run: RunClientTool, server: str = "") -> list[Function]:
    """The functions behind a client's tools, or `UnusableTool`; `run` has the client run one.

    Each server, or client of a key, is asked about alone, and its tools are known again by its name.
    """
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            raise UnusableTool(f"two tools are called {name[:100]!r}")
    if wrong := find_bad_schema([(tool.name[:100], tool.parameters) for tool in tools], server):
        raise UnusableTool(wrong)
    names = name_tools([tool.name for tool in tools])
    return [_build_function(tool, name, run, server) for tool, name in zip(tools, names, strict=True)]


def name_tools(names: Sequence[str]) -> list[str]:
    """The names as agents are told them: those that no provider takes are written otherwise, each in one way."""
    told = {
        name: name for name in names if len(name) <= _MAX_NAME and not _NOT_IN_NAMES.search(name) and name
    }
    taken = set(told)
    for number, name in enumerate(names, 1):
        if name not in told:
            plain = _NOT_IN_NAMES.sub("_", name)[:_MAX_NAME] or "_"
            while plain in taken:
                plain = f"{plain[: _MAX_NAME - 5]}_{number}"
                number += len(names)
            told[name] = plain
            taken.add(plain)
    return [told[name] for name in names]


def _build_function(tool: ToolSpec, name: str, run: RunClientTool, server: str) -> Function:
    def call_client(**given: Any) -> Any:
        return run(tool.name, given)

    def build_parameters(schema: Mapping[str, Any]) -> type[BaseModel]:
        return _build_parameters(name, orjson.dumps(schema), server)

    return ForeignFunction(
        name=name,
        description=tool.description,
        parameters=build_parameters(tool.parameters),
        build_parameters=build_parameters,
        dependencies={},
        run=call_client,
        full_docstring=tool.description,
        return_type=None,
        server=server,
    )


@lru_cache(maxsize=_MAX_CACHED_TOOLS)
def _build_parameters(tool: str, raw: bytes, owner: str) -> type[BaseModel]:
    schema = orjson.loads(raw)
    names = [name for name in list_arguments(schema) if name.isidentifier() and not _is_taken(name)]
    fields: dict[str, Any] = dict.fromkeys(names, (Any, ABSENT))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A property may be called `schema` or `copy`.
        made = create_model(f"Arguments of {tool}", __base__=SchemaArguments, **fields)
    # Providers want to read that it is an object.
    made.shown_schema, made.checked_schema, made.owner = {"type": "object", **schema}, raw, owner
    return made


def _is_taken(name: str) -> bool:
    """True if a name is one that pydantic's models need for themselves."""
    return name.startswith(("_", "model_")) or name in SchemaArguments.__annotations__
