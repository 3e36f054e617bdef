"""A scripted model, a small runtime and AgentDojo's banking suite, for the tests of the baselines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import scripted_model
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant

Turn: TypeAlias = ChatAssistantMessage | Callable[[ChatRequest], ChatAssistantMessage]


class ScriptedModel(scripted_model.ScriptedModel):
    """Plays the agent, or whoever asks."""

    @property
    def seen(self) -> list[list[ChatMessage]]:
        """The messages of each request."""
        return [list(request.messages) for request in self.requests]


def calls(*functions: str, **args: Any) -> ChatAssistantMessage:
    """An assistant message that calls these tools in parallel, all with the same arguments."""
    return assistant(None, [FunctionCall(function=f, args=dict(args), id=f"call_{f}") for f in functions])


def runtime_returning(**results: Any) -> FunctionsRuntime:
    """A runtime with one tool per keyword, without parameters, that returns (or raises) its value."""
    runtime = FunctionsRuntime()
    for name, result in results.items():
        runtime.register_function(_tool(name, result))
    return runtime


def _tool(name: str, result: Any) -> Callable[[], Any]:
    def tool() -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    tool.__name__ = name
    tool.__doc__ = f"Returns the {name}."
    return tool


def ground_truth_turns(task: Any, environment: TaskEnvironment) -> list[ChatAssistantMessage]:
    """What a perfect model says in this user task: one call per turn, then the answer."""
    planned: list[FunctionCall] = task.ground_truth(environment)
    turns = [
        assistant(None, [FunctionCall(function=call.function, args=dict(call.args), id=f"call_{index}")])
        for index, call in enumerate(planned)
    ]
    return [*turns, assistant(task.GROUND_TRUTH_OUTPUT or "Done.")]


__all__ = ["ScriptedModel", "calls", "ground_truth_turns", "runtime_returning"]
