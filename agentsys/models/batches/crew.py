"""`Crew`: the threads that run cases, and whether all of them wait for a reply in a batch."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Crew:
    """Counts threads. Used from all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at_work = Counter[int]()
        self._waiting = Counter[int]()
        self._changed = time.monotonic()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count this thread among those that run a case."""
        with self._counted(self._at_work):
            yield

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count this thread among those that can do nothing before a batch ends."""
        with self._counted(self._waiting):
            yield

    @property
    def quiet_s(self) -> float:
        """Seconds since nobody has moved, with everybody at work waiting; 0 while somebody is not."""
        with self._lock:
            moving = self._at_work.keys() - self._waiting.keys()
            return 0.0 if moving else time.monotonic() - self._changed

    @contextmanager
    def _counted(self, among: Counter[int]) -> Iterator[None]:
        me = threading.get_ident()
        with self._lock:
            among[me] += 1
            self._changed = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                among[me] -= 1
                if not among[me]:
                    del among[me]
                self._changed = time.monotonic()
