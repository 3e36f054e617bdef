"""`CaseClock`: the time that a case's tools read, so that the same case is the same conversation each time.

Tools stamp mails and files with `datetime.now()`. Models read the stamps, so requests of two identical runs
would differ, and a reply kept from the first would never answer one of the second.
"""

from __future__ import annotations

import datetime
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel

from agentsys.abilities import HasClock
from agentsys.contracts import Suite
from agentsys.errors import ConfigError

REAL_CLOCK = "real"
"""`benchmark.clock` where tools read the machine's clock."""
DEFAULT_CLOCK = "2025-01-01 12:00:00.5"
"""Where a case's clock starts. One moment for all runs: taken from a run's start, no two runs would agree.

Later than every date in AgentDojo's data (the last is 12 July 2024), as the present was in every published
run, so that what is sorted by date is sorted as there. The half second marks its stamps: no date of the data
has fractions, and re-scoring tells stamps by them.
"""
_STEP = datetime.timedelta(seconds=1)


class CaseClock:
    """A clock that moves on by a second each time it is read: what is done later has a later stamp."""

    def __init__(self, start: datetime.datetime) -> None:
        self._next = start
        self._lock = threading.Lock()  # a defense may run tools side by side

    def now(self, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        """The time, in the machine's zone as far as one is asked for."""
        with self._lock:
            read, self._next = self._next, self._next + _STEP
        return read if tz is None else read.astimezone(tz)


_CURRENT_CLOCK: ContextVar[CaseClock | None] = ContextVar("agentsys_clock", default=None)


@contextmanager
def use_case_clock(start: datetime.datetime | None) -> Iterator[None]:
    """Let tools of this thread's context read a clock of their own inside the block; None: the machine's."""
    token = _CURRENT_CLOCK.set(None if start is None else CaseClock(start))
    try:
        yield
    finally:
        _CURRENT_CLOCK.reset(token)


def find_clock_start(benchmark: object) -> datetime.datetime | None:
    """Start of the clock of a benchmark's cases; None where they read the machine's or none at all."""
    return benchmark.clock if isinstance(benchmark, HasClock) else None


def parse_clock(value: object) -> datetime.datetime | None:
    """`benchmark.clock` as it is meant.

    Raises:
        ConfigError: If it is neither `real` nor a date and time without a zone.
    """
    if str(value) == REAL_CLOCK:
        return None
    try:
        start = datetime.datetime.fromisoformat(str(value))
    except ValueError:
        start = None
    if start is None or start.tzinfo is not None:
        raise ConfigError(
            f"benchmark.clock={value}: give 'real', or a date and time without a zone,"
            f" e.g. '{DEFAULT_CLOCK}'."
        )
    return start


class _ClockClass:
    """In place of `datetime.datetime` or `datetime.date`: the same, but that the current time is the case's.

    Not a subclass: what tools make with it must be of the real class, or it would not be equal to, and not
    be stored like, what stands in the environment already.
    """

    def __init__(self, real: type[datetime.date]) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __call__(self, *args: Any, **kwargs: Any) -> datetime.date:
        return self._real(*args, **kwargs)

    def __instancecheck__(self, value: object) -> bool:
        return isinstance(value, self._real)

    def __subclasscheck__(self, cls: type) -> bool:
        return issubclass(cls, self._real)

    def today(self) -> datetime.date:
        clock = _CURRENT_CLOCK.get()
        if clock is None:
            return self._real.today()
        return clock.now() if self._real is datetime.datetime else clock.now().date()


class _ClockDatetime(_ClockClass):
    def now(self, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        clock = _CURRENT_CLOCK.get()
        return datetime.datetime.now(tz) if clock is None else clock.now(tz)

    def utcnow(self) -> datetime.datetime:
        return self.now(datetime.UTC).replace(tzinfo=None)


_DATETIME, _DATE = _ClockDatetime(datetime.datetime), _ClockClass(datetime.date)


class _ClockModule:
    """In place of the module `datetime`."""

    datetime, date = _DATETIME, _DATE

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


_STAND_INS: dict[int, object] = {
    id(datetime): _ClockModule(),
    id(datetime.datetime): _DATETIME,
    id(datetime.date): _DATE,
}


def install_case_clocks(suite: Suite, further: Iterable[ModuleType] = ()) -> None:
    """Let a suite's tools read the clock of the case they run in.

    AgentDojo's tools call `datetime.datetime.now()` in methods of the environment's models, and take no
    clock from anywhere: their modules' own names are the only place where another one can be put. So the
    names `datetime` (the module, or the class) and `date` of these modules are bound to stand-ins, once.
    Nothing else is touched: neither Python's `datetime` nor any other module's. Without a case's clock in
    the running thread's context a stand-in reads the machine's, so that other users of these modules in
    this process see no difference.

    Args:
        suite: The suite.
        further: Modules of its tools that are not found from the suite itself.
    """
    found = (sys.modules.get(name) for name in find_tool_modules(suite))
    for module in (*(module for module in found if module is not None), *further):
        for key, value in list(vars(module).items()):
            if id(value) in _STAND_INS:
                vars(module)[key] = _STAND_INS[id(value)]


def find_tool_modules(suite: Suite) -> set[str]:
    """Names of the modules that hold a suite's tools and its environment's models."""
    found: set[type[BaseModel]] = set()
    _collect(suite.environment_type, found)
    return {tool.run.__module__ for tool in suite.tools} | {model.__module__ for model in found}


def _collect(annotation: Any, found: set[type[BaseModel]]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
        found.add(annotation)
        for field in annotation.model_fields.values():
            _collect(field.annotation, found)
    for inner in get_args(annotation):
        _collect(inner, found)
