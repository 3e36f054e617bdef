"""One small question with one small tool: does a model's server answer, and can it call tools?"""

from __future__ import annotations

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, user

ROLE = "preflight"
_TOOL = "ready"
QUESTION = ChatRequest(
    [user(f"This is a test of the connection. Call the tool `{_TOOL}` once, with the word yes.")],
    [
        ToolSpec(
            _TOOL,
            "Tells that tool calls work.",
            {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        )
    ],
    role=ROLE,
)


def called(reply: ChatReply) -> bool:
    """Whether the reply is the call that was asked for."""
    return [call.function for call in reply.message["tool_calls"] or ()] == [_TOOL]


def is_question(request: ChatRequest) -> bool:
    """Whether a request is this question, over whichever wire it came."""
    return [tool.name for tool in request.tools] == [_TOOL]


def right_answer() -> ChatAssistantMessage:
    """The answer that a model should give; the simulated one does."""
    return assistant(None, [FunctionCall(function=_TOOL, args={"word": "yes"}, id="call_ready")])
