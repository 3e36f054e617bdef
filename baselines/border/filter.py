"""`BorderFilter`: what may happen to calls on their way to the tools, and to results on their way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import ChatMessage, ChatToolResultMessage
from pydantic import ValidationError

from agentsys.models.trace import current_tracer


@dataclass(frozen=True)
class FilterTurn:
    """One turn of an agent as a filter sees it."""

    query: str
    """The user's task."""
    runtime: FunctionsRuntime
    """The tools."""
    messages: Sequence[ChatMessage] = ()
    """The conversation up to the message that makes the calls; empty where the agent has none of its own
    that a filter could be shown (`baselines.border.runtime`)."""


@dataclass(frozen=True)
class CallRuling:
    """A call after a filter has seen it."""

    call: FunctionCall
    """The call to run."""
    refusal: str | None = None
    """Error text that the agent gets in place of a result; None: the call runs."""


class EndCase(Exception):
    """A filter ends the case. The message is its last words, and quotes no result.

    `results` are those of the turn as the record is to keep them.
    """

    def __init__(self, words: str, results: Sequence[ChatToolResultMessage]) -> None:
        super().__init__(words)
        self.results = tuple(results)


class BoundaryFilter:
    """Lets everything pass. Made afresh for each case, so it may keep what belongs to one."""

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Decide on the calls of one turn, all of which the tools would take, before the first of them runs.

        Returns:
            One ruling per call, in order.

        Raises:
            ModelError: If a model that was asked gave no reply.
        """
        return [CallRuling(call) for call in calls]

    def filter_results(self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]) -> list[ChatToolResultMessage]:
        """Give what the agent reads in place of these results, in order of the calls that were run.

        Returns:
            One message per result, in order; the very same object where nothing is changed.

        Raises:
            ModelError: If a model that was asked gave no reply.
            EndCase: If the case ends here.
        """
        return list(results)


def tool_accepts(runtime: FunctionsRuntime, call: FunctionCall) -> bool:
    """Whether a tool would take a call. Other calls are answered without one, in the agent's own words."""
    tool = runtime.functions.get(call.function)
    if tool is None:
        return False
    try:
        tool.parameters.model_validate(dict(call.args))
    except ValidationError:
        return False
    return True


def apply_to_calls(filters: Sequence[BoundaryFilter], turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
    """Rule on calls by each filter in turn; a refused call is shown to no further one.

    Refused calls are booked in the trace.
    """
    rulings = [CallRuling(call) for call in calls]
    for one in filters:
        places = [
            place
            for place, ruling in enumerate(rulings)
            if ruling.refusal is None and tool_accepts(turn.runtime, ruling.call)
        ]
        found = one.rule_on_calls(turn, [rulings[place].call for place in places]) if places else []
        for place, ruling in zip(places, found, strict=True):
            rulings[place] = ruling
            if ruling.refusal is not None:
                current_tracer().tool_refused(ruling.call.function, dict(ruling.call.args), ruling.refusal)
    return rulings


def apply_to_results(
    filters: Sequence[BoundaryFilter], turn: FilterTurn, results: Sequence[ChatToolResultMessage]
) -> list[ChatToolResultMessage]:
    """What is left of results after each filter in turn.

    Raises:
        EndCase: If one of them ends the case.
    """
    read = list(results)
    for one in filters:
        read = one.filter_results(turn, read)
    return read
