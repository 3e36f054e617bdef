"""Replies that come to nothing: empty ones, and tool calls that a server passed on as text.

A server without a tool-call parser, or with another family's, answers with the call as the model wrote it. To
the agent that is a final answer, so a table comes out that looks like that of a weak and very safe model.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from agentsys.models.chat import ChatReply, ChatRequest, text_of

EMPTY = "empty"
UNPARSED_CALL = "unparsed_call"

_CALL_MARKS = re.compile(
    # Hermes and Qwen; Llama 3; Mistral; DeepSeek; Kimi; gpt-oss; GLM and MiniMax
    r"<tool_call>|<\|python_tag\|>|\[TOOL_CALLS\]|<｜tool▁calls?▁begin｜>|<\|tool_calls?_(section_)?begin\|>"
    r"|<\|channel\|>commentary to=|<(function|invoke)( name)?=\S|<function_call>|<\|tool_call\|?>"
)
_JSON_CALL = re.compile(r'\{\s*"(?:type"\s*:\s*"function"\s*,\s*")?(?:name|function)"\s*:\s*"([^"]{1,100})"')
_ARGUMENTS = re.compile(r'"(arguments|parameters)"\s*:')
_PYTHON_CALL = re.compile(r"\A\s*\[?\s*([A-Za-z_]\w*)\(.*\)\s*\]?\s*\Z", re.DOTALL)
_MAX_CHARS = 20_000
"""Characters of a reply that are looked at."""


def count_oddities(request: ChatRequest, reply: ChatReply) -> dict[str, int]:
    """Count what is odd about a reply and those asked for again before it, by kind; mostly nothing."""
    found = {
        EMPTY: reply.empty_before + is_empty_reply(reply),
        UNPARSED_CALL: int(is_unparsed_call(request, reply)),
    }
    return {kind: count for kind, count in found.items() if count}


def is_empty_reply(reply: ChatReply) -> bool:
    """Whether a reply says nothing and calls nothing."""
    if reply.message["tool_calls"]:
        return False
    blocks = reply.message["content"] or ()
    return not any(block["type"] == "text" and (block["content"] or "").strip() for block in blocks)


def is_unparsed_call(request: ChatRequest, reply: ChatReply) -> bool:
    """Whether tools were on offer, none was called, and the text looks like a call."""
    if not request.tools or request.tool_choice == "none" or reply.message["tool_calls"]:
        return False
    return looks_like_call(text_of(reply.message)[:_MAX_CHARS], {tool.name for tool in request.tools})


def looks_like_call(text: str, tools: Collection[str]) -> bool:
    """Whether a text has a call in it, in the form of some family of models.

    Args:
        text: What a model wrote.
        tools: Names of the tools on offer; a call without a mark of its own must name one of them.
    """
    if _CALL_MARKS.search(text):
        return True
    named = _JSON_CALL.search(text)
    if named and named.group(1) in tools and _ARGUMENTS.search(text, named.end()):
        return True
    pythonic = _PYTHON_CALL.match(text)
    return pythonic is not None and pythonic.group(1) in tools
