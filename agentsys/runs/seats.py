"""`Seats`: how many cases have their agent at work at a time, while others are made ready or stored.

A case has things to do before its agent's first request and after its last: load the environment, score,
write the record. While it does them one request less is under way; with 64 workers and a model that takes
0.2 s, that was 4% of the time. So a worker process has a few threads more than seats.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


class NotBegun(BaseException):
    """The run is ending, and the case's agent has not begun. A BaseException: it is nobody's failure."""


@dataclass
class _Waiting:
    """A thread that waits for a seat, and what came of it."""

    me: int
    goes_on: bool
    told: threading.Event = field(default_factory=threading.Event)
    seated: bool = False


class Seats:
    """Gives out seats in the order in which they are asked for. Used from many threads.

    Args:
        number: How many there are.
    """

    def __init__(self, number: int) -> None:
        self._lock = threading.Lock()
        self._free = number
        self._seated = set[int]()
        self._waiting = deque[_Waiting]()
        self._ending = False

    @contextmanager
    def taken(self, *, goes_on: bool = False) -> Iterator[float]:
        """Have a seat for this thread's agent inside the block; a thread that has one keeps it.

        Args:
            goes_on: Whether the agent has been at work before, so that its case is not given up any more.

        Yields:
            Seconds that it waited for the seat.

        Raises:
            NotBegun: If the run is ending.
        """
        me = threading.get_ident()
        if me in self._seated:
            yield 0.0
            return
        since = time.perf_counter()
        self._take(me, goes_on)
        try:
            yield time.perf_counter() - since
        finally:
            self._give_back(me)

    def begin_no_more(self) -> None:
        """Give up the cases that wait for their first seat, and those that will."""
        with self._lock:
            self._ending = True
            for one in [one for one in self._waiting if not one.goes_on]:
                self._waiting.remove(one)
                one.told.set()

    def _take(self, me: int, goes_on: bool) -> None:
        with self._lock:
            if self._ending and not goes_on:
                raise NotBegun
            if self._free:
                self._free -= 1
                self._seated.add(me)
                return
            mine = _Waiting(me, goes_on)
            self._waiting.append(mine)
        mine.told.wait()
        if not mine.seated:
            raise NotBegun

    def _give_back(self, me: int) -> None:
        with self._lock:
            self._seated.remove(me)
            if not self._waiting:
                self._free += 1
                return
            # Handed over, so that none who asks later is faster.
            following = self._waiting.popleft()
            self._seated.add(following.me)
            following.seated = True
            following.told.set()
