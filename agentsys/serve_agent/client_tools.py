"""Tools of a client as AgentDojo's functions: checked by the client's own JSON schema, run by the client."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from agentdojo.functions_runtime import Function, TaskEnvironment
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from pydantic import BaseModel, ConfigDict, create_model, model_validator
from referencing.exceptions import Unresolvable

from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.models.chat import ToolSpec

RunClientTool = Callable[[str, dict[str, Any]], Any]
"""(tool, arguments that were given) -> what the client's tool returned. Raises `ToolFailed`."""

_MAX_CACHED_TOOLS = 4096
"""Tools whose parameters are remembered: a client sends the same ones with every request."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class UnusableTool(ValueError):
    """A client's tool cannot be offered to an agent; the message says why."""


class ToolFailed(Exception):
    """A client's tool failed, in the client's words."""


class _Absent:
    """Stands for an argument that was not given."""


_ABSENT = _Absent()


class ClientRuntime(TracedRuntime):
    """Runs a client's tools. Their errors are passed on in the client's words, without a Python class."""

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool as the base class does.

        Raises:
            Exception: As the base class.
        """
        value, error = super().run_function(env, function, kwargs, raise_on_error)
        return value, None if error is None else error.removeprefix(f"{ToolFailed.__name__}: ")


def build_client_functions(tools: Sequence[ToolSpec], run: RunClientTool) -> list[Function]:
    """The functions behind a client's tools, as a request brings them; `run` has the client run one.

    Raises:
        UnusableTool: If two have one name, or a schema is none, or not one of an object's arguments.
    """
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise UnusableTool(f"two tools are called {name!r}")
    return [_build_function(tool, run) for tool in tools]


def _build_function(tool: ToolSpec, run: RunClientTool) -> Function:
    def called(**given: Any) -> Any:
        return run(tool.name, {name: value for name, value in given.items() if value is not _ABSENT})

    return Function(
        name=tool.name,
        description=tool.description,
        parameters=_build_parameters(tool.name, orjson.dumps(tool.parameters)),
        dependencies={},
        run=called,
        full_docstring=tool.description,
        return_type=None,
    )


@lru_cache(maxsize=_MAX_CACHED_TOOLS)
def _build_parameters(tool: str, raw: bytes) -> type[BaseModel]:
    """A model of a tool's arguments: one field for each property, and the schema as its check."""
    schema = orjson.loads(raw)
    properties = schema.get("properties") or {}
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        raise UnusableTool(f"the parameters of tool {tool!r} must be an object's schema")
    for name in properties:
        if not _NAME.fullmatch(name):
            raise UnusableTool(f"tool {tool!r}: parameters have names of letters, digits and _, not {name!r}")
    checker = _build_checker(tool, schema)

    def check(cls: type[BaseModel], values: Any) -> Any:
        try:
            wrong = best_match(checker.iter_errors(values))
        except (Unresolvable, RecursionError, re.error) as error:
            raise ValueError(f"the tool's schema cannot be applied: {type(error).__name__}") from None
        if wrong is not None:
            place = "".join(f"[{part!r}]" for part in wrong.absolute_path)
            raise ValueError(f"{place} {wrong.message}".strip())
        return values

    validators: dict[str, Any] = {"check": model_validator(mode="before")(check)}
    fields: dict[str, Any] = dict.fromkeys(properties, (Any, _ABSENT))
    open_ended = schema.get("additionalProperties") or schema.get("patternProperties")
    config = ConfigDict(extra="allow" if open_ended else "ignore", arbitrary_types_allowed=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A property may be called `schema` or `copy`.
        made: type[BaseModel] = create_model(
            f"Arguments of {tool}", __config__=config, __validators__=validators, **fields
        )
    # Models are shown the schema as the client wrote it; pydantic knows fields that accept anything.
    own = classmethod(lambda cls, *args, **kwargs: schema)
    made.model_json_schema = own  # type: ignore[assignment, method-assign]
    return made


def _build_checker(tool: str, schema: Mapping[str, Any]) -> Validator:
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except (SchemaError, RecursionError, re.error) as error:
        told = error.message if isinstance(error, SchemaError) else type(error).__name__
        raise UnusableTool(f"the schema of tool {tool!r} is not valid: {told}") from None
    # The registry of the dialects alone: a reference to elsewhere is never fetched.
    checker: Validator = kind(schema, registry=REGISTRY)
    return checker
