"""`Turn`: where in its plan a conversation stands while tools run. Simulated tools ask for it.

A tool cannot be told by its caller: whichever agent of a defense calls it, it runs in the step that the
conversation is in. So the state travels beside the calls, in the context of the case's thread.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Turn:
    """One step of a plan on its way."""

    step: int
    """The step's place in the plan, from 1."""
    of: int
    """How many steps the plan has."""

    @property
    def final(self) -> bool:
        """Whether it is the plan's last step, in which nothing is injected any more."""
        return self.step >= self.of


_CURRENT: ContextVar[Turn | None] = ContextVar("agentsys_asb_turn", default=None)


def current_turn() -> Turn | None:
    """The step whose tool calls run now; None where the conversation has no plan, or none yet."""
    return _CURRENT.get()


def set_turn(turn: Turn | None) -> None:
    """Say which step runs from now on in this context; None: no plan."""
    _CURRENT.set(turn)
