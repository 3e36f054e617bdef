"""`ClientShards`: several clients of one server, each with a few connections.

An HTTP client looks through all of its connections under one lock for every request: at a hundred at a time
that costs more than the request itself, and at two hundred the threads stand in line for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

EACH = 16
"""Requests under way at once through one client."""


class ClientShards:
    """Clients, as many as there are requests under way for. Used from many threads.

    Args:
        connect: Makes one more.
        each: Requests under way at once through each.
    """

    def __init__(self, connect: Callable[[], Any], each: int = EACH) -> None:
        self.first = connect()
        """The one that is there from the start."""
        self._connect, self._each = connect, each
        self._lock = threading.Lock()
        self._clients, self._under_way = [self.first], [0]

    @contextmanager
    def one(self) -> Iterator[Any]:
        """Use the first client that has room: a few warm connections are better than many cold ones."""
        with self._lock:
            place = next((n for n, busy in enumerate(self._under_way) if busy < self._each), None)
            if place is None:
                place = len(self._clients)
                self._clients.append(self._connect())
                self._under_way.append(0)
            self._under_way[place] += 1
        try:
            yield self._clients[place]
        finally:
            with self._lock:
                self._under_way[place] -= 1

    def __len__(self) -> int:
        return len(self._clients)
