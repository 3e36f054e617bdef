"""Run portions of some work side by side, each in a Python process of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import TypeVar

from agentsys.errors import ConfigError

_P = TypeVar("_P")
_A = TypeVar("_A")


def map_in_processes(work: Callable[[_P], _A], portions: Iterable[_P], processes: int) -> Iterator[_A]:
    """Yield the answers in the order of the portions; work, portions and answers must be picklable.

    Raises:
        ConfigError: If a process was ended from without. What `work` raises is raised here.
    """
    # Fresh interpreters: a copy of this process would inherit its threads' locks. Ctrl-C is the parent's.
    ignore_interrupts = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(processes, get_context("spawn"), signal.signal, ignore_interrupts)
    try:
        yield from pool.map(work, portions)
    except BrokenProcessPool:
        raise ConfigError(
            f"One of {processes} processes was ended from outside (out of memory?): try it with fewer."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
