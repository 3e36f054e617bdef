"""Forms in which a model is shown a finished round of tool calls: as it is, or as assistant text (ASB's)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage

from agentsys.benchmarks.asb.plan_prompt import THINKING
from agentsys.models.chat import assistant, text_of, tool_message
from agentsys.models.providers.wire_text import result_text, visible_text

ACTION, OBSERVATION = "[Action]:", "[Observation]:"
"""Markers of the two halves of a round. Source: ASB's transcript format."""

_CALLED = "I call the tool {name}."
_OBSERVED = "From the tool {name} I have: {text}"
_NAMES = re.compile(r"I call the tool (.*?)\.(?=;)")


class RoundForm(Enum):
    """The two forms of a round."""

    TOOL_ROLE = "tool_role"
    """Calls and results as they are, in messages of their own."""
    ASSISTANT_TEXT = "assistant_text"
    """One assistant message that tells what was called and what came of it. Arguments are left out, and
    so are words that accompanied the calls."""


def render_round(round_: Sequence[ChatMessage], rendering: RoundForm) -> list[ChatMessage]:
    """A reply that was handed out and what the defense put behind it, as the model reads them.

    Args:
        round_: The assistant's message, then tool results and whatever else followed.
        rendering: The form of tool calls and results.

    Returns:
        New messages. A call that nobody answered leaves no observation; a tool that does not exist leaves
        the error as its observation, once. (ASB runs the round again up to ten times then, and may note
        one tool's output under another's name.)
    """
    said, rest = round_[0], list(round_[1:])
    assert said["role"] == "assistant"
    if not said["tool_calls"]:
        return [write_thought(visible_text(said)), *rest]
    if rendering is RoundForm.TOOL_ROLE:
        return [said, *rest]
    results = [message for message in rest if message["role"] == "tool"]
    others = [message for message in rest if message["role"] != "tool"]
    return [assistant(_tell_round(said["tool_calls"], results)), *others]


def write_thought(text: str) -> ChatAssistantMessage:
    """Write what an agent said without calling anything."""
    return assistant(THINKING + text)


def _tell_round(calls: Sequence[FunctionCall], results: Sequence[ChatToolResultMessage]) -> str:
    made = ";".join(_CALLED.format(name=call.function) for call in calls)
    seen = ";".join(
        _OBSERVED.format(name=result["tool_call"].function, text=result_text(result)) for result in results
    )
    return f"{ACTION}{made};{OBSERVATION}{seen}"


def restore_rounds(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The conversation with rounds that were told as text turned back into calls and results.

    For the simulated model, which reads calls and results. Errors come back as contents.
    """
    return [back for place, message in enumerate(messages) for back in _restore_round(message, place)]


def _restore_round(message: ChatMessage, place: int) -> Iterator[ChatMessage]:
    text = text_of(message) if message["role"] == "assistant" else ""
    if not text.startswith(ACTION) or OBSERVATION not in text:
        yield message
        return
    actions, _, observations = text.removeprefix(ACTION).partition(OBSERVATION)
    names = _NAMES.findall(actions)
    calls = [
        FunctionCall(function=name, args={}, id=f"told_{place}_{index}") for index, name in enumerate(names)
    ]
    yield assistant(None, calls)
    for call, seen in zip(calls, _split_observations(observations, names), strict=False):
        yield tool_message(call, seen)


def _split_observations(text: str, names: Sequence[str]) -> Iterator[str]:
    """Find what stands behind each tool's opening words, in the order of the calls."""
    openings = [_OBSERVED.format(name=name, text="") for name in names]
    rest = text
    for opening, following in zip(openings, [*openings[1:], None], strict=True):
        if not rest.startswith(opening):
            return
        seen, found, after = (
            rest[len(opening) :].partition(f";{following}") if following else (rest[len(opening) :], "", "")
        )
        yield seen
        rest = f"{following}{after}" if found else ""
