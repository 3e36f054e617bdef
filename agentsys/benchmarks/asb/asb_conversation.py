"""`PlannedConversation`: the conversation with plan and steps, rebuilt for every request.

A defense keeps its own conversation: the system message, the task, the replies it got and its tools' results. The plan
and the steps' turns are not in it. So for each request the defense's messages are cut into rounds, and plan and turns
are inserted between them: the model reads everything as the defense has rewritten it. A finished round is shown as it
is, or as assistant text (ASB's form).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.asb.asb_plan import THINKING, PlanningOutcome, format_followed_plan
from agentsys.models.chat import assistant, system, text_of, tool_message
from agentsys.models.providers.wire_parts import read_result_text, read_visible_text

ACTION, OBSERVATION = "[Action]:", "[Observation]:"
"""Markers of the two halves of a round. Source: ASB's transcript format."""

_CALLED = "I call the tool {name}."
_OBSERVED = "From the tool {name} I have: {text}"
_NAMES = re.compile(r"I call the tool (.*?)\.(?=;)")


class RoundForm(Enum):
    """The two forms of a round."""

    TOOL_ROLE = "tool_role"
    """Calls and results as native messages."""
    ASSISTANT_TEXT = "assistant_text"
    """One assistant message with the names of the called tools and their results, without arguments and without the
    words that accompanied the calls."""


def render_round(round_: Sequence[ChatMessage], rendering: RoundForm) -> list[ChatMessage]:
    """Render a round (an assistant message and the messages up to the next one) in the given form.

    An unanswered call has no observation; a tool that does not exist has the error as its observation, once. (ASB runs
    the round again up to ten times then, and may note one tool's output under another's name.)
    """
    reply, rest = round_[0], list(round_[1:])
    assert reply["role"] == "assistant"
    if not reply["tool_calls"]:
        return [make_thought_message(read_visible_text(reply)), *rest]
    if rendering is RoundForm.TOOL_ROLE:
        return [reply, *rest]
    results = [message for message in rest if message["role"] == "tool"]
    others = [message for message in rest if message["role"] != "tool"]
    made = ";".join(_CALLED.format(name=call.function) for call in reply["tool_calls"])
    seen = ";".join(
        _OBSERVED.format(name=result["tool_call"].function, text=read_result_text(result))
        for result in results
    )
    return [assistant(f"{ACTION}{made};{OBSERVATION}{seen}"), *others]


def make_thought_message(text: str) -> ChatAssistantMessage:
    """Make the message of an agent that called no tool."""
    return assistant(THINKING + text)


def restore_rounds(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Convert rounds in text form back to calls and results, for the simulated model.

    Errors become contents.
    """
    return [restored for index, message in enumerate(messages) for restored in _restore_round(message, index)]


def _restore_round(message: ChatMessage, number: int) -> Iterator[ChatMessage]:
    text = text_of(message) if message["role"] == "assistant" else ""
    if not text.startswith(ACTION) or OBSERVATION not in text:
        yield message
        return
    actions, _, observations = text.removeprefix(ACTION).partition(OBSERVATION)
    names = _NAMES.findall(actions)
    calls = [
        FunctionCall(function=name, args={}, id=f"told_{number}_{index}") for index, name in enumerate(names)
    ]
    yield assistant(None, calls)
    for call, seen in zip(calls, _split_observations(observations, names), strict=False):
        yield tool_message(call, seen)


def _split_observations(text: str, names: Sequence[str]) -> Iterator[str]:
    """Yield the text after each tool's opening words, in the order of the calls."""
    openings = [_OBSERVED.format(name=name, text="") for name in names]
    rest = text
    for opening, following in zip(openings, [*openings[1:], None], strict=True):
        if not rest.startswith(opening):
            return
        seen, separator, after = (
            rest[len(opening) :].partition(f";{following}") if following else (rest[len(opening) :], "", "")
        )
        yield seen
        rest = f"{following}{after}" if separator else ""


@dataclass(frozen=True)
class HandedReply:
    """A reply that the defense got."""

    step: int
    """Index of its step in the plan, from 0."""
    turns: tuple[ChatMessage, ...]
    """Messages since the round before: steps answered with words, and this step's turn."""
    request_length: int
    """Number of messages in the defense's request."""


@dataclass
class PlannedConversation:
    """One run of a defense's pipeline."""

    attempt: int
    """Number of the pipeline's run."""
    task: str
    """The user's task in the defense's words."""
    base: int
    """Number of assistant messages in the defense's conversation before its first reply."""
    instruction: str
    """The planning instruction."""
    planning: PlanningOutcome
    notes: tuple[ChatMessage, ...] = ()
    """Messages in place of replies that were no plan."""
    handed_replies: dict[int, HandedReply] = field(default_factory=dict)
    """Number of rounds before a reply -> the reply."""

    def find_next_step(self, position: int) -> int:
        """Return the step, from 0, with which a request after `position` rounds continues."""
        done = [reply.step for before, reply in self.handed_replies.items() if before < position]
        return max(done) + 1 if done else 0

    def build_messages(self, messages: Sequence[ChatMessage], rendering: RoundForm) -> list[ChatMessage]:
        """Rebuild the conversation from a defense's messages, up to the next step's turn."""
        head, rounds = split_rounds(messages, self.base)
        conversation = [*add_instruction(head, self.instruction), *self.notes]
        conversation.append(assistant(format_followed_plan(self.planning.followed_plan)))
        for position, round_ in enumerate(rounds):
            reply = self.handed_replies.get(position)
            # A round without a handed reply is the defense's own and stays in its position.
            conversation += [*(reply.turns if reply else ()), *render_round(round_, rendering)]
        return conversation


def split_rounds(
    messages: Sequence[ChatMessage], base: int
) -> tuple[list[ChatMessage], list[list[ChatMessage]]]:
    """Cut a defense's conversation before each assistant message but the first `base`.

    Returns:
        The messages before the first round, and the rounds: an assistant message and those that follow it.
    """
    replies = [index for index, message in enumerate(messages) if message["role"] == "assistant"][base:]
    head = list(messages[: replies[0]]) if replies else list(messages)
    return head, [list(messages[start:end]) for start, end in pairwise([*replies, len(messages)])]


def add_instruction(head: Sequence[ChatMessage], instruction: str) -> list[ChatMessage]:
    """Insert the planning instruction after the system messages."""
    first = next((index for index, message in enumerate(head) if message["role"] != "system"), len(head))
    return [*head[:first], system(instruction), *head[first:]]


def find_task_text(messages: Sequence[ChatMessage]) -> str:
    """Return the first user message: the task in the defense's words."""
    return next((read_visible_text(message) for message in messages if message["role"] == "user"), "")
