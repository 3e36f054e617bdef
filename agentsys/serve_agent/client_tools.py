"""Tools of a client as AgentDojo's functions: checked by the client's own JSON schema, run by the client."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import orjson
import regex
from agentdojo.functions_runtime import Function
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from jsonschema_specifications import REGISTRY
from pydantic import BaseModel, ConfigDict, create_model, model_validator
from referencing.exceptions import Unresolvable

from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.models.chat import ToolSpec
from agentsys.models.untrusted import ForeignFunction

RunClientTool = Callable[[str, dict[str, Any]], Any]
"""(tool, arguments that were given) -> what the client's tool returned. Raises `ToolFailed`."""

_MAX_CACHED_TOOLS = 4096
"""Tools whose parameters are remembered: a client sends the same ones with every request."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
MAX_CHECK_S = 0.1
"""Seconds that a check of a call's arguments may take; schemas and arguments are a client's and a model's."""
_DEADLINE: ContextVar[float] = ContextVar("check_deadline", default=float("inf"))


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


def build_client_functions(tools: Sequence[ToolSpec], run: RunClientTool, server: str = "") -> list[Function]:
    """The functions behind a client's tools, or `UnusableTool`; `run` has the client run one.

    Each server, or client of a key, is asked about alone, and its tools are known again by its name.
    """
    for name, count in Counter(tool.name for tool in tools).items():
        if count > 1:
            raise UnusableTool(f"two tools are called {name!r}")
    return [_build_function(tool, run, server) for tool in tools]


def _build_function(tool: ToolSpec, run: RunClientTool, server: str) -> Function:
    def call_client(**given: Any) -> Any:
        return run(tool.name, {name: value for name, value in given.items() if value is not ABSENT})

    def build_parameters(schema: Mapping[str, Any]) -> type[BaseModel]:
        return _build_parameters(tool.name, orjson.dumps(schema))

    return ForeignFunction(
        name=tool.name,
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
def _build_parameters(tool: str, raw: bytes) -> type[BaseModel]:
    """A model of a tool's arguments: one field for each property, and the schema as its check."""
    schema = orjson.loads(raw)
    properties = schema.get("properties") or {}
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        raise UnusableTool(f"the parameters of tool {tool!r} must be an object's schema")
    for name in properties:
        if not _NAME.fullmatch(name):
            raise UnusableTool(f"tool {tool!r}: parameters have names of letters, digits and _, not {name!r}")
        if hasattr(BaseModel, name) and name.startswith("model_"):
            raise UnusableTool(f"tool {tool!r}: no parameter can be called {name!r} here; rename it")
    _build_checker(tool, raw)

    def check(cls: type[BaseModel], values: Any) -> Any:
        if wrong := find_misfit(tool, raw, values):
            raise ValueError(wrong)
        return values

    validators: dict[str, Any] = {"check": model_validator(mode="before")(check)}
    fields: dict[str, Any] = dict.fromkeys(properties, (Any, ABSENT))
    open_ended = schema.get("additionalProperties") or schema.get("patternProperties")
    config = ConfigDict(
        extra="allow" if open_ended else "ignore", arbitrary_types_allowed=True, protected_namespaces=()
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # A property may be called `schema` or `copy`.
        made: type[BaseModel] = create_model(
            f"Arguments of {tool}", __config__=config, __validators__=validators, **fields
        )
    # Models are shown the schema as the client wrote it; pydantic knows fields that accept anything.
    own = classmethod(lambda cls, *args, **kwargs: schema)
    made.model_json_schema = own  # type: ignore[assignment, method-assign]
    return made


def find_misfit(tool: str, raw: bytes, values: Any) -> str | None:
    """What is wrong with arguments by a tool's schema, as JSON; None if nothing is."""
    token = _DEADLINE.set(time.monotonic() + MAX_CHECK_S)
    try:
        wrong = best_match(_build_checker(tool, raw).iter_errors(values))
    except TimeoutError:
        return f"the tool's schema takes more than {MAX_CHECK_S:g} s to apply"
    except (Unresolvable, RecursionError, re.error, regex.error) as error:
        return f"the tool's schema cannot be applied: {type(error).__name__}"
    finally:
        _DEADLINE.reset(token)
    if wrong is None:
        return None
    place = "".join(f"[{part!r}]" for part in wrong.absolute_path)
    return f"{place} {wrong.message}".strip()


@lru_cache(maxsize=_MAX_CACHED_TOOLS)
def _build_checker(tool: str, raw: bytes) -> Validator:
    schema = orjson.loads(raw)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except (SchemaError, RecursionError, re.error) as error:
        told = f"{getattr(error, 'json_path', type(error).__name__)}: {getattr(error, 'message', error)}"
        raise UnusableTool(f"the schema of tool {tool!r} is not valid: {told}") from None
    bound = {name: _limit_keyword_time(check) for name, check in kind.VALIDATORS.items()}
    if b'"unevaluatedProperties"' in raw:
        # jsonschema matches names of properties by `re` there, which no deadline stops.
        raise UnusableTool(
            f"the schema of tool {tool!r} has 'unevaluatedProperties', which is not taken here"
        )
    # The registry of the dialects alone: a reference to elsewhere is never fetched.
    own = {"patternProperties": _check_matching, "additionalProperties": _check_others}
    bound = {**bound, **own, "pattern": _check_pattern}
    checker: Validator = extend(kind, bound)(schema, registry=REGISTRY)
    return checker


def _limit_keyword_time(check: Any) -> Any:
    """A keyword's check, which ends at the deadline however often a schema refers to itself."""

    def bound(*asked: Any) -> Any:
        _compute_seconds_left()
        return check(*asked)

    return bound


def _check_pattern(checker: Validator, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _matches(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _check_matching(checker: Validator, patterns: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    for name, one in value.items() if isinstance(value, dict) else ():
        for pattern in (pattern for pattern in patterns if _matches(pattern, name)):
            yield from checker.descend(one, patterns[pattern], path=name, schema_path=pattern)


def _check_others(checker: Validator, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    names = [name for name in value if name not in known] if isinstance(value, dict) else []
    for name in names:
        if not any(_matches(pattern, name) for pattern in patterns):
            yield from checker.descend(value[name], wanted, path=name)


def _matches(pattern: str, text: str) -> bool:
    return regex.search(pattern, text, timeout=_compute_seconds_left(), concurrent=True) is not None


def _compute_seconds_left() -> float:
    left = _DEADLINE.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
