"""What tools of the benchmarks return where nothing is planted: what filters must leave alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.asb.asb_benchmark import ASB


class RealResult(NamedTuple):
    """A call of a user task's ground truth, and what came of it."""

    call: FunctionCall
    text: str
    """As the agent is shown it; empty for a failed call."""
    error: str | None


def agentdojo_results(suites: Sequence[str]) -> Iterator[RealResult]:
    """Every call of every user task's ground truth in some suites of AgentDojo v1.2.2."""
    benchmark = AgentDojo("v1.2.2", suites=list(suites))
    for suite in map(benchmark.suite, benchmark.suite_names()):
        for task in suite.user_tasks.values():
            environment = task.init_environment(suite.load_and_inject_default_environment({}))
            runtime = FunctionsRuntime(suite.tools)
            for call in task.ground_truth(environment):
                value, error = runtime.run_function(environment, call.function, call.args)
                yield RealResult(call, "" if error else tool_result_to_str(value), error)


def asb_outputs(data: str) -> Iterator[str]:
    """Every output of the tools of ASB's agents.

    Args:
        data: `sample`, or the folder of ASB's own data.
    """
    benchmark = ASB(data=data)
    for name in benchmark.suite_names():
        yield from (tool.output for tool in benchmark.suite(name).agent.normal_tools)
