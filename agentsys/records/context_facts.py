"""`ContextFacts`: what the messages of one context show: results, calls, when the injection stood in it.

Definitions: docs/data.md. Messages come from files that anyone may have written, with string content
(AgentDojo before 0.1.27, DRIFT) or content blocks: what is not a message is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsys.base.payload_lines import PayloadLines, contains_payload

CHARS_PER_TOKEN = 3.6
"""Characters per token when tokens are estimated."""


@dataclass(slots=True)
class ContextFacts:
    """One context looked through from its first message to its last."""

    results: int = 0
    """Tool results in it."""
    calls: dict[str, int] = field(default_factory=dict)
    """Tool -> results, sorted by name."""
    result_chars: int = 0
    """Characters of all tool results as the model was shown them."""
    answer_chars: int | None = None
    """Characters of the last message's text; None unless that is an assistant's without calls."""
    injection_round: int | None = None
    """The first tool result that holds a line of the payload, from 1."""
    rounds_exposed: int = 0
    """Assistant messages after the first tool result or user message that holds one."""
    made: list[Any] = field(default_factory=list)
    """Calls that assistant messages make, executed or not."""


def measure_context(messages: Sequence[Any], lines: PayloadLines) -> ContextFacts:
    """Look through one context."""
    results = chars = rounds = 0
    calls: dict[str, int] = {}
    made: list[Any] = []
    injection_round = None
    exposed = False
    for message in messages:
        role = message.get("role") if isinstance(message, dict) else None
        if role == "assistant":
            rounds += exposed
            if isinstance(more := message.get("tool_calls"), list):
                made += more
        elif role == "tool":
            text = join_tool_result(message)
            results += 1
            chars += len(text)
            call = message.get("tool_call")
            name = call.get("function") if isinstance(call, dict) else None
            name = name if isinstance(name, str) else "unknown"
            calls[name] = calls.get(name, 0) + 1
            if injection_round is None and lines and contains_payload(text, lines):
                injection_round, exposed = results, True
        elif role == "user" and not exposed and lines:
            exposed = contains_payload(join_content_text(message.get("content")), lines)
    last, answer_chars = messages[-1] if messages else None, None
    if isinstance(last, dict) and last.get("role") == "assistant" and not last.get("tool_calls"):
        answer_chars = len(join_content_text(last.get("content")))
    in_order = calls if len(calls) < 2 else dict(sorted(calls.items()))
    return ContextFacts(results, in_order, chars, answer_chars, injection_round, rounds, made)


def collect_prompt_words(messages: Sequence[Any]) -> list[str]:
    """The user's and the system message's words before the agent's first reply."""
    said = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ("system", "user"):
            break
        said.append(join_content_text(message.get("content")))
    return said


_THOUGHTS = ("thinking", "redacted_thinking")
JUDGED_THOUGHTS = "the checks were given the model's thoughts too"
"""A case's note."""


def note_judged_thoughts(messages: Sequence[Any]) -> tuple[str, ...]:
    """The note of a record whose checks were given its last message whole; none where no thoughts stand there."""
    last = messages[-1] if messages else None
    content = last.get("content") if isinstance(last, dict) else None
    blocks = content if isinstance(content, list) else ()
    found = any(isinstance(block, dict) and block.get("type") in _THOUGHTS for block in blocks)
    return (JUDGED_THOUGHTS,) if found else ()


def join_content_text(content: object) -> str:
    """The text of a message's content, old form (a string) or new (a list of blocks); no thoughts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = []
    for block in content:
        if isinstance(block, dict) and block.get("type") not in _THOUGHTS:
            text = block.get("content")
            if isinstance(text, str):
                parts.append(text)
    return "\n".join(parts)


def join_tool_result(message: Mapping[str, Any]) -> str:
    """The text of a tool result as a model sees it: the error in place of the content where there is one."""
    error = message.get("error")
    return error if isinstance(error, str) and error else join_content_text(message.get("content"))


def find_bound(messages: Sequence[Any]) -> str | None:
    """`rounds` where the last message still makes calls, which nobody carried out any more."""
    last = messages[-1] if messages else None
    made = last.get("tool_calls") if isinstance(last, dict) and last.get("role") == "assistant" else None
    return "rounds" if made and isinstance(made, list) else None


def estimate_tokens(chars: int) -> int:
    """Tokens of so many characters, by the fixed rate that every defense is measured with."""
    return round(chars / CHARS_PER_TOKEN)
