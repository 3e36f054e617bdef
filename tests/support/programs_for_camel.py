"""What the tests of CaMeL share: running a program on made-up tools, and a planner that is scripted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatMessage
from scripted_model import EVERY, ScriptedModel

from agentsys.models.chat import text_of
from baselines.camel.defense import Camel
from baselines.camel.language.functions import CLASSES, PROVIDED_FUNCTIONS
from baselines.camel.language.interpreter import run_program
from baselines.camel.language.machine import Machine, ProgramError, ToolValue
from baselines.flow.labelled_values import FROM_USER, FlowLabel, Value, label_from_tool, to_value

PRIVATE = label_from_tool("tool", (), ("bob@x.org",))


@dataclass
class ToolsOf:
    """Tools without parameters, each with what it returns and the label of all of it."""

    results: Mapping[str, tuple[Any, FlowLabel]]
    called: list[str] = field(default_factory=list)

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        self.called.append(tool)
        raw, label = self.results[tool]
        if isinstance(raw, ProgramError):
            raise raw
        return to_value(raw, label)


def machine_with(*, strict: bool = False, **results: Any) -> Machine:
    """A machine whose tools return these untrusted, private values."""
    world = ToolsOf({name: (raw, label_from_tool(name, (), ("bob@x.org",))) for name, raw in results.items()})
    tools = {name: ToolValue(FROM_USER, name, ()) for name in results}
    return Machine(world, {**PROVIDED_FUNCTIONS, **CLASSES, **tools}, strict)


def run(program: str, *, strict: bool = False, **results: Any) -> Value:
    """The value of a program's last statement."""
    return run_program(program, machine_with(strict=strict, **results))


def failure(program: str, **results: Any) -> ProgramError:
    """The error of a program that fails."""
    try:
        run(program, **results)
    except ProgramError as error:
        return error
    raise AssertionError(f"it ran: {program!r}")


class Planner(ScriptedModel):
    """Plays the planner, which writes programs, and the quarantined model, which answers in JSON."""

    def __init__(self, programs: Sequence[str], answers: Sequence[Any] = ()) -> None:
        written = [answer if isinstance(answer, str) else json.dumps(answer) for answer in answers]
        super().__init__({"agent": list(programs), EVERY: written})

    @property
    def planned(self) -> list[Any]:
        """The messages of each question to the planner, which has no tools."""
        assert not any(request.tools for request in self.requests_of("agent"))
        return [list(request.messages) for request in self.requests_of("agent")]

    @property
    def read(self) -> list[Any]:
        return [list(request.messages) for request in self.requests_of(EVERY)]


def block(code: str) -> str:
    """A reply with this program."""
    return f"Here it is:\n```python\n{code}\n```"


@dataclass
class Ran:
    """What a run of the defense left."""

    messages: list[ChatMessage]
    environment: Any
    executed: list[tuple[str, dict[str, Any]]]

    @property
    def answer(self) -> str | None:
        last = self.messages[-1]
        return None if last["content"] is None else text_of(last)

    @property
    def denied(self) -> bool:
        return any("stopped by a policy" in text_of(m) for m in self.messages if m["role"] == "user")


@lru_cache(maxsize=8)
def suite_of(name: str) -> Any:
    return get_suite("v1.2.2", name)


@lru_cache(maxsize=8)
def _environment(name: str) -> TaskEnvironment:
    environment: TaskEnvironment = suite_of(name).load_and_inject_default_environment({})
    return environment


def fresh(suite: str, change: Callable[[Any], None] | None = None) -> Any:
    """A copy of the suite's clean environment."""
    environment = _environment(suite).model_copy(deep=True)
    if change is not None:
        change(environment)
    return environment


class Booking(FunctionsRuntime):
    """A runtime that keeps what it ran."""

    executed: list[tuple[str, dict[str, Any]]]

    def run_function(self, env: Any, function: str, kwargs: Any, raise_on_error: bool = False) -> Any:
        self.executed = [*getattr(self, "executed", []), (function, dict(kwargs))]
        return super().run_function(env, function, kwargs, raise_on_error)


def run_camel(
    suite: str, model: Planner, environment: Any = None, *, query: str = "Do it.", **options: Any
) -> Ran:
    """One task of the defense on a suite's tools."""
    chosen = suite_of(suite)
    environment = fresh(suite) if environment is None else environment
    runtime = Booking(chosen.tools)
    _, _, after, messages, _ = Camel(**options).pipeline(model, chosen).query(query, runtime, environment)
    return Ran(list(messages), after, getattr(runtime, "executed", []))
