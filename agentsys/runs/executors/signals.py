"""`held_back`: signals that ask a run to end are heeded between two turns of it."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Windows has no SIGHUP."""


@contextmanager
def defer_signals() -> Iterator[Callable[[], None]]:
    """Inside the block signals that end the run wait until the function is called that is handed out.

    It does what each handler would have done, so it may raise. Otherwise they strike anywhere: between the
    end of a case and the line that books it, too. A second Ctrl-C strikes at once, as the function may never
    be called again. On other threads than the main one, which get no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers = {int(number): handler for number in _STOP_SIGNALS if callable(handler := signal.getsignal(number))}
    waiting = deque[int]()

    def note(number: int, frame: FrameType | None) -> None:
        if waiting and number == signal.SIGINT:
            handlers[number](number, frame)
        waiting.append(number)

    def heed() -> None:
        while waiting:
            number = waiting.popleft()
            handlers[number](number, None)

    for number in handlers:
        signal.signal(number, note)
    try:
        yield heed
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
