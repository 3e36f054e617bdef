"""One small question with one small tool: does a model's server answer, and can it call tools?"""

from __future__ import annotations

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, user

PREFLIGHT_ROLE = "preflight"
_READY_TOOL = "ready"
CONNECTION_QUESTION = ChatRequest(
    [user(f"This is a test of the connection. Call the tool `{_READY_TOOL}` once, with the word yes.")],
    [
        ToolSpec(
            _READY_TOOL,
            "Tells that tool calls work.",
            {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        )
    ],
    role=PREFLIGHT_ROLE,
)


def is_expected_call(reply: ChatReply) -> bool:
    """Whether the reply is the call that was asked for."""
    return [call.function for call in reply.message["tool_calls"] or ()] == [_READY_TOOL]


def is_connection_question(request: ChatRequest) -> bool:
    """Whether a request is this question, over whichever wire it came."""
    return [tool.name for tool in request.tools] == [_READY_TOOL]


def connection_answer() -> ChatAssistantMessage:
    """The answer that a model should give; the simulated one does."""
    return assistant(None, [FunctionCall(function=_READY_TOOL, args={"word": "yes"}, id="call_ready")])
