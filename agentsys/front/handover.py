"""`Handover`: where a pipeline's thread and the client's requests meet.

The thread offers calls and waits for their answers; a request brings answers and waits for the next offer, or
for the turn's end. The thread that waits for a client watches the time itself: nobody else has to end it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentsys.front.place import ToolAnswer


class ConversationEnded(BaseException):
    """The conversation ends before its turn. A BaseException: no defense may take it for a tool's failure."""


@dataclass(frozen=True)
class OfferedCall:
    """A tool call as it is handed to the client."""

    id: str
    tool: str
    args: Mapping[str, object]


class CallHandover:
    """The meeting point of one turn of a conversation.

    Args:
        idle_s: Seconds that an offer waits for its answer.
    """

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._meet = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._offer: tuple[OfferedCall, ...] | None = None
        self._answers: Mapping[str, ToolAnswer] | None = None
        self._done = False
        self._ended: str | None = None

    def ask(self, calls: Sequence[OfferedCall]) -> Mapping[str, ToolAnswer]:
        """Offer calls and wait for their answers. Called from the pipeline's thread, or threads of its own.

        Raises:
            ConversationEnded: If none came in time, or the conversation was ended.
        """
        with self._one_at_a_time, self._meet:
            self._raise_if_ended()
            self._offer = tuple(calls)
            self._meet.notify_all()
            met = self._meet.wait_for(
                lambda: self._answers is not None or self._ended is not None, self.idle_s
            )
            if not met:
                self._ended = f"no result of a tool came for {self.idle_s:g} s"
            self._raise_if_ended()
            answers, self._answers = self._answers, None
            assert answers is not None
            return answers

    def check_alive(self) -> None:
        """Go no further in a conversation that has ended.

        Raises:
            ConversationEnded: If it has.
        """
        with self._meet:
            self._raise_if_ended()

    def answer(self, answers: Mapping[str, ToolAnswer]) -> bool:
        """Answer the calls that are offered; False if the answer comes too late, or is of other calls."""
        with self._meet:
            offered = {call.id for call in self._offer or ()}
            if self._ended is not None or not offered or answers.keys() != offered:
                return False
            self._offer, self._answers = None, answers
            self._meet.notify_all()
            return True

    def next_offer(self) -> tuple[OfferedCall, ...]:
        """Wait for the next calls, or for the turn's end: then there are none."""
        with self._meet:
            self._meet.wait_for(lambda: self._done or self._offer is not None)
            return self._offer or ()

    def finish(self) -> None:
        """Say that the turn is over. Called from the pipeline's thread, when all about it is stored."""
        with self._meet:
            self._done, self._offer = True, None
            self._meet.notify_all()

    def end(self, why: str) -> None:
        """End the turn from outside; its thread stops where it next asks a tool or a model."""
        with self._meet:
            self._ended = self._ended or why
            self._meet.notify_all()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            self._offer = None
            raise ConversationEnded(self._ended)
