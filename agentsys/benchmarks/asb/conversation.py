"""`Conversation`: what the model has been led through so far, put together anew for every request.

A defense keeps its own conversation: the system message, the task, the replies it was handed and what its
tools returned. The plan and the steps' turns are not in it. So for each request the defense's messages are
cut into rounds, and what belongs between them is put back: whatever the defense has rewritten since then,
the model reads as rewritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from agentdojo.types import ChatMessage

from agentsys.benchmarks.asb.plan import PlanningOutcome
from agentsys.benchmarks.asb.plan_prompt import write_followed_plan
from agentsys.benchmarks.asb.rendering import RoundForm, render_round
from agentsys.models.chat import assistant, system
from agentsys.models.providers.wire_text import visible_text


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

    def next_step(self, position: int) -> int:
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


def count_assistant_messages(messages: Sequence[ChatMessage]) -> int:
    """Count the assistant messages."""
    return sum(message["role"] == "assistant" for message in messages)


def find_task_text(messages: Sequence[ChatMessage]) -> str:
    """The first user message: the task as a defense words it."""
    return next((visible_text(message) for message in messages if message["role"] == "user"), "")
