"""`PlannedConversation`: what the model has been led through so far, put together anew for every request.

A defense keeps its own conversation: the system message, the task, the replies it was handed and what its
tools returned. The plan and the steps' turns are not in it. So for each request the defense's messages are
cut into rounds, and what belongs between them is put back: whatever the defense has rewritten since then,
the model reads as rewritten. A finished round is shown as it is, or as assistant text (ASB's form).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.asb.asb_plan import THINKING, PlanningOutcome, write_followed_plan
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
    """Calls and results as they are, in messages of their own."""
    ASSISTANT_TEXT = "assistant_text"
    """One assistant message that tells what was called and what came of it. Arguments are left out, and
    so are words that accompanied the calls."""


def render_round(round_: Sequence[ChatMessage], rendering: RoundForm) -> list[ChatMessage]:
    """An assistant's message and what the defense put behind it, as the model reads them, in new messages.

    A call that nobody answered leaves no observation; a tool that does not exist leaves the error as its
    observation, once. (ASB runs the round again up to ten times then, and may note one tool's output under
    another's name.)
    """
    said, rest = round_[0], list(round_[1:])
    assert said["role"] == "assistant"
    if not said["tool_calls"]:
        return [write_thought(read_visible_text(said)), *rest]
    if rendering is RoundForm.TOOL_ROLE:
        return [said, *rest]
    results = [message for message in rest if message["role"] == "tool"]
    others = [message for message in rest if message["role"] != "tool"]
    made = ";".join(_CALLED.format(name=call.function) for call in said["tool_calls"])
    seen = ";".join(
        _OBSERVED.format(name=one["tool_call"].function, text=read_result_text(one)) for one in results
    )
    return [assistant(f"{ACTION}{made};{OBSERVATION}{seen}"), *others]


def write_thought(text: str) -> ChatAssistantMessage:
    """Write what an agent said without calling anything."""
    return assistant(THINKING + text)


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


@dataclass(frozen=True)
class HandedReply:
    """A reply that the defense was handed."""

    step: int
    """Place of its step in the plan, from 0."""
    turns: tuple[ChatMessage, ...]
    """What the model read since the round before: steps answered with words, and this step's turn."""
    request_length: int
    """Length of the defense's conversation when it asked."""


@dataclass
class PlannedConversation:
    """One run of a defense's pipeline."""

    attempt: int
    """Which run of the pipeline it is."""
    task: str
    """The user's task as the defense words it."""
    base: int
    """Assistant messages in the defense's conversation before the first reply it was handed."""
    instruction: str
    """The planning instruction."""
    planning: PlanningOutcome
    notes: tuple[ChatMessage, ...] = ()
    """What stands for replies that were no plan."""
    handed_replies: dict[int, HandedReply] = field(default_factory=dict)
    """Replies by position: how many rounds stood before each."""

    def find_next_step(self, position: int) -> int:
        """The step, from 0, that a request with so many rounds goes on with."""
        done = [reply.step for place, reply in self.handed_replies.items() if place < position]
        return max(done) + 1 if done else 0

    def build_messages(self, messages: Sequence[ChatMessage], rendering: RoundForm) -> list[ChatMessage]:
        """The conversation that belongs to a defense's messages, up to the next step's turn."""
        head, rounds = split_rounds(messages, self.base)
        found = [*add_instruction(head, self.instruction), *self.notes]
        found.append(assistant(write_followed_plan(self.planning.followed_plan)))
        for position, round_ in enumerate(rounds):
            reply = self.handed_replies.get(position)
            # A round that was not ours is a defense's own: it stands where the defense put it.
            found += [*(reply.turns if reply else ()), *render_round(round_, rendering)]
        return found


def split_rounds(
    messages: Sequence[ChatMessage], base: int
) -> tuple[list[ChatMessage], list[list[ChatMessage]]]:
    """A defense's conversation cut before each assistant message, the first `base` of which do not count.

    Returns:
        What stands before the first round, and the rounds: an assistant's message and what followed it.
    """
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"][base:]
    head = list(messages[: replies[0]]) if replies else list(messages)
    return head, [list(messages[start:end]) for start, end in pairwise([*replies, len(messages)])]


def add_instruction(head: Sequence[ChatMessage], instruction: str) -> list[ChatMessage]:
    """The beginning of a conversation with the planning instruction behind its system messages."""
    first = next((place for place, message in enumerate(head) if message["role"] != "system"), len(head))
    return [*head[:first], system(instruction), *head[first:]]


def find_task_text(messages: Sequence[ChatMessage]) -> str:
    """The first user message: the task as a defense words it."""
    return next((read_visible_text(message) for message in messages if message["role"] == "user"), "")
