"""Calls of a script, made on an environment without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from pydantic_core import to_jsonable_python

from agentsys.contracts import Suite
from agentsys.models.simulated.grounding import ground_arguments
from agentsys.models.simulated.playbook import Fact, ScriptedCall


def script_calls(calls: Iterable[FunctionCall]) -> tuple[ScriptedCall, ...]:
    """Calls of a ground truth as a script has them."""
    return tuple(ScriptedCall(call.function, to_jsonable_python(dict(call.args))) for call in calls)


def to_function_calls(calls: Iterable[ScriptedCall]) -> list[FunctionCall]:
    """Calls of a script as a task's check is given them."""
    return [FunctionCall(function=call.function, args=dict(call.args)) for call in calls]


def run_calls(
    suite: Suite, calls: Iterable[ScriptedCall], environment: TaskEnvironment, drawn: Sequence[Fact] = ()
) -> list[str]:
    """Make these calls and give what an agent reads then; errors as AgentDojo words them.

    Args:
        suite: The suite whose tools are called.
        calls: The calls, in order.
        environment: Changed by them.
        drawn: Numbers in the calls that are read from what earlier calls returned.
    """
    # Imported here: the module behind it loads every vendor's SDK.
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str

    runtime = FunctionsRuntime(suite.tools)
    outputs: list[str] = []
    for call in calls:
        args = ground_arguments(call.args, drawn, outputs)
        value, error = runtime.run_function(environment, call.function, args)
        # At once: a later call may change the very object that this one returned.
        outputs.append(tool_result_to_str(value) if error is None else error)
    return outputs
