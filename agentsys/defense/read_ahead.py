"""Reading ahead: the first questions about the outputs of neighbouring reading calls are asked side by side.

The calls are tried on a copy of the environment, up to the first question to a model. Then they run in their turn as
they always do. A question that still is the same has its reply by then; any other is asked anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile

from agentdojo.functions_runtime import FunctionCall

from agentsys.defense.agent_session import AgentSession
from agentsys.defense.privileges import Privilege
from agentsys.defense.worker import CallingAgent
from agentsys.models.chat import ChatReply, ChatRequest, ModelError
from agentsys.models.untrusted import ForeignFunction, TriableRuntime

ServeCall = Callable[[AgentSession, FunctionCall, CallingAgent], str]
"""Runs a call and has a worker read its output (`delegation.serve_call`, which imports this module)."""


class _FirstQuestion(Exception):
    """A tried call has come to its first question."""

    def __init__(self, request: ChatRequest) -> None:
        super().__init__(request.role)
        self.request = request


class _UnaskedModel:
    name = "unasked"

    def complete(self, request: ChatRequest) -> ChatReply:
        raise _FirstQuestion(request)


def read_ahead(
    session: AgentSession, calls: Sequence[FunctionCall], agent: CallingAgent, serve_call: ServeCall
) -> int:
    """Ask ahead about the outputs of the reading calls at the beginning of `calls`.

    Returns:
        The number of these calls.
    """
    readings = list(takewhile(lambda call: _may_try(session, call), calls))
    if session.early is not None and len(readings) > 1:
        for request in _list_first_questions(session, readings, agent, serve_call):
            session.early.ask(request)
    return len(readings)


def _may_try(session: AgentSession, call: FunctionCall) -> bool:
    """True if a call only reads, and its tool is a benchmark's: a tool of somebody else would run twice."""
    is_foreign = isinstance(session.runtime.functions.get(call.function), ForeignFunction)
    reads = session.early_labels.get(call.function) is Privilege.QUERY
    return isinstance(session.runtime, TriableRuntime) and reads and not is_foreign


def _list_first_questions(
    session: AgentSession, calls: Sequence[FunctionCall], agent: CallingAgent, serve_call: ServeCall
) -> list[ChatRequest]:
    assert isinstance(session.runtime, TriableRuntime)
    requests: list[ChatRequest] = []
    with session.runtime.try_on_copy(session.env) as env:
        trial = session.make_trial(_UnaskedModel(), env)
        trial_agent = CallingAgent(agent.depth, agent.trace.branch(), agent.path, Counter(agent.refusals))
        for call in calls:
            try:
                serve_call(trial, call, trial_agent)
            except _FirstQuestion as asked:
                requests.append(asked.request)
            except ModelError:  # The tools could not be sorted.
                break
    return requests
