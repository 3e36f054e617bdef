"""Each executed tool call is booked once, with value and error; the runtime behaves as AgentDojo's."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, ToolNotFoundError, make_function
from pydantic import BaseModel, ValidationError

from agentsys.benchmarks.traced_tools import TracedRuntime, to_json_ready
from agentsys.models.trace import Tracer, use_tracer


def double(number: int) -> int:
    """Doubles.

    :param number: what to double.
    """
    if number < 0:
        raise ValueError("negative")
    return 2 * number


class Noted:
    def __init__(self) -> None:
        self.values: list[tuple[object, str | None]] = []

    def tool_returned(self, value: object, error: str | None) -> None:
        self.values.append((value, error))

    def model_asked(self, request: Any) -> None:
        pass


def run(function: str, args: dict[str, Any], **options: Any) -> tuple[Any, Tracer, Noted]:
    tracer, noted = Tracer(), Noted()
    tracer.watchers.append(noted)  # type: ignore[arg-type]
    with use_tracer(tracer):
        result = TracedRuntime([make_function(double)]).run_function(None, function, args, **options)
    return result, tracer, noted


def test_an_unknown_tool_is_not_an_execution() -> None:
    result, tracer, _ = run("triple", {"number": 1})
    assert result == ("", "ToolNotFoundError: The requested function `triple` is not available.")
    assert tracer.executed_calls == []
    with pytest.raises(ToolNotFoundError):
        run("triple", {}, raise_on_error=True)


def test_errors_are_raised_where_the_caller_wants_them_raised_and_still_booked() -> None:
    tracer = Tracer()
    runtime = TracedRuntime([make_function(double)])
    with use_tracer(tracer), pytest.raises(ValueError, match="negative"):
        runtime.run_function(None, "double", {"number": -1}, raise_on_error=True)
    with use_tracer(tracer), pytest.raises(ValidationError):
        runtime.run_function(None, "double", {"number": "x"}, raise_on_error=True)
    assert [name for name, _, _ in tracer.executed_calls] == ["double", "double"]


def test_a_nested_call_is_booked_once_before_the_call_it_stands_in() -> None:
    inner = FunctionCall(function="double", args={"number": 1})
    result, tracer, noted = run("double", {"number": inner})
    assert result == (4, None)
    assert [args["number"] for _, args, _ in tracer.executed_calls] == [1, to_json_ready(inner)]
    assert [value for value, _ in noted.values] == [2, 4]


class Model(BaseModel):
    when: datetime.date


def test_arguments_become_json_ready() -> None:
    odd = {"m": Model(when=datetime.date(2024, 5, 15)), "s": {1}, "t": (1, None, 2.5, True), 3: object}
    assert json.loads(json.dumps(to_json_ready(odd)))["m"] == {"when": "2024-05-15"}
