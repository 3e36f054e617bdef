"""Signals that ask a run to end: its workers leave them to their driver, who heeds them between two turns."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_WARNING = [getattr(signal, name) for name in ("SIGUSR1", "SIGUSR2") if hasattr(signal, name)]
"""What batch systems announce an end with, to whoever asked for it; Windows has neither."""


def leave_to_driver() -> None:
    """Pass over all of them from here on, as does what this process forks.

    A batch system sends its signals to every process of a job. A worker that ended at one would lose what its
    driver, which got the same, is letting it finish; it ends when the driver has no more to say, or is gone.
    """
    for number in (*_ENDING, *_WARNING):
        # A handler, for what is ignored (SIG_IGN) would be so in programs that are started from here, too.
        signal.signal(number, _pass_over)


def _pass_over(number: int, frame: FrameType | None) -> None:
    return


@contextmanager
def held_back() -> Iterator[Callable[[], None]]:
    """Inside the block signals that end the run wait until the function is called that is handed out.

    It does what each handler would have done, so it may raise. Otherwise they strike anywhere: between the
    line that books a case as a worker's and the one that hands it to that worker, too. A Ctrl-C strikes at
    once where another signal waits, as the function may never be called again. On other threads than the
    main one, which get no signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    handlers = {int(number): handler for number in _ENDING if callable(handler := signal.getsignal(number))}
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
