"""Workers as their driver sees them, wherever they are: `Hand` is one, `Staff` hires and hears them."""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar

from agentsys.runs.executors.messages import Order, Told

_Said = TypeVar("_Said")


def drained(said: queue.SimpleQueue[_Said], timeout_s: float) -> list[_Said]:
    """Everything in a queue, waiting so long for the first."""
    found = list[_Said]()
    with suppress(queue.Empty):
        found.append(said.get(timeout=timeout_s))
        while True:
            found.append(said.get_nowait())
    return found


class Hand(ABC):
    """One worker."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in messages."""

    @abstractmethod
    def send(self, order: Order) -> None:
        """Give an order; one that is gone hears nothing."""


@dataclass(frozen=True)
class Gone:
    """A worker has ended."""

    how: str
    """E.g. `worker process 7 was killed by signal 9`."""
    blameless: bool = False
    """Whether its machine went, so that no case can have been the cause."""


@dataclass(frozen=True)
class Heard:
    """Something that a worker said, or that became of it."""

    hand: Hand
    told: Told | Gone


class Staff(Protocol):
    """The workers of one run."""

    def hire(self) -> Hand:
        """Start one more."""

    def heard(self, timeout_s: float) -> list[Heard]:
        """What the workers said, waiting so long for the first word."""

    def dismiss(self) -> None:
        """End all of them: they have nothing to do any more."""

    def kill(self) -> None:
        """End all of them in the middle of what they do; nobody else's process is touched."""
