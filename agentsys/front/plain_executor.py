"""`together`: hands out the calls of one message at once where a defense runs them all anyway.

AgentDojo's own executor, standing as such in a loop, runs every call of a message in order and asks nobody.
Then nothing is decided between one call and the next, and a client may run them side by side. A defense with
an executor of its own decides call by call, and its calls are handed out one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop
from agentdojo.functions_runtime import FunctionsRuntime
from pydantic import ValidationError

from agentsys.models.element import LoopState, LoopStep
from agentsys.models.loop import ElementRow, is_row
from agentsys.models.tools import as_executed
from agentsys.models.tools_element import runs_plainly

HandOut = Callable[[Sequence[tuple[str, dict[str, Any]]]], None]
"""Has the client run these calls (tool, arguments), whose results are asked for next."""


def together(pipeline: BasePipelineElement, hand_out: HandOut) -> BasePipelineElement:
    """The pipeline, each plain executor in it with a look ahead before it. What it does is the same."""
    if is_row(type(pipeline)):
        return ElementRow([together(element, hand_out) for element in pipeline.elements], pipeline.name)
    if type(pipeline) is ToolsExecutionLoop:
        elements: list[BasePipelineElement] = []
        for element in pipeline.elements:
            if runs_plainly(element):
                elements.append(_LookAhead(hand_out))
            elements.append(element)
        return ToolsExecutionLoop(elements, pipeline.max_iters)
    return pipeline


class _LookAhead(LoopStep):
    """Hands out the calls that the executor behind it is about to run, where there are several."""

    def __init__(self, hand_out: HandOut) -> None:
        self._hand_out = hand_out

    def step(self, at: LoopState) -> LoopState:
        last = at.messages[-1] if at.messages else None
        made = (last["tool_calls"] or ()) if last is not None and last["role"] == "assistant" else ()
        calls = [found for call in made if (found := _as_run(at.runtime, call)) is not None]
        if len(calls) > 1:
            self._hand_out(calls)
        return at


def _as_run(runtime: FunctionsRuntime, call: Any) -> tuple[str, dict[str, Any]] | None:
    """A call with the arguments that the executor would run it with; None if it would not."""
    function = runtime.functions.get(call.function)
    if function is None:
        return None
    args = as_executed(deepcopy(call.args))
    try:
        return call.function, function.parameters.model_validate(args).model_dump(exclude_unset=True)
    except ValidationError:
        return None
