"""Tools that are repeatable: the clock and the random numbers of a case, and sets that keep their order.

The same case is then the same conversation each time, and a reply kept from one run answers in the next.

* `CaseClock`: tools stamp mails and files with `datetime.now()`, and models read the stamps.
* `CaseRandom`: AgentDyn's tools draw one-time codes and order numbers from the module `random`.
  `find_recorded_draws` finds the numbers of a recorded case: its calls are done again with numbers of our own;
  where one of these stands today, the recorded text has the number that was drawn then, and with it the calls get
  further, to the next one.
* `InsertionOrderedSet`: AgentDojo's calendar drops repeated participants with `list(set(participants))` (0.1.35), and
  the order of such a list changes with Python's hash seed.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, get_args

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment
from pydantic import BaseModel

from agentsys.abilities import DrawsAtRandom, HasClock
from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys.models.recorded_runs import pick_current_tool_name

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


DIGITS = "0123456789"


class CaseRandom(random.Random):
    """A generator that first draws what a record of the case says was drawn, then what its seed gives.

    Args:
        key: What the draws depend on: the same key, the same draws.
        recorded: Numbers, as text, that were drawn when the case was recorded, in order; None for one that
            the record does not tell.
    """

    def __init__(self, key: Sequence[object], recorded: Sequence[str | None] = ()) -> None:
        text = json.dumps([str(part) for part in key])
        super().__init__(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
        self._recorded = tuple(recorded)
        self.drawn_numbers: list[str] = []
        """The numbers drawn so far."""

    def choices(self, population: Any, *args: Any, **options: Any) -> list[Any]:
        """Draw as the base class does; where the digits of a code are drawn, the recorded code."""
        found = super().choices(population, *args, **options)
        return found if population != DIGITS else list(self._draw_recorded_or_own("".join(found)))

    def randint(self, a: int, b: int) -> int:
        """Draw as the base class does, or the recorded number."""
        return int(self._draw_recorded_or_own(str(super().randint(a, b))))

    def _draw_recorded_or_own(self, own: str) -> str:
        place = len(self.drawn_numbers)
        told = self._recorded[place] if place < len(self._recorded) else None
        self.drawn_numbers.append(own if told is None or len(told) != len(own) else told)
        return self.drawn_numbers[-1]


_CURRENT_RANDOM: ContextVar[CaseRandom | None] = ContextVar("agentsys_random", default=None)


@contextmanager
def use_case_random(generator: CaseRandom) -> Iterator[CaseRandom]:
    """Let tools of this thread's context draw from a generator of their own inside the block."""
    token = _CURRENT_RANDOM.set(generator)
    try:
        yield generator
    finally:
        _CURRENT_RANDOM.reset(token)


class _RandomModule:
    """In place of the module `random`: the same, but that the current case's generator draws."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_CURRENT_RANDOM.get() or random, name)


_RANDOM_STAND_IN = _RandomModule()


def install_case_random(modules: Iterable[ModuleType]) -> None:
    """Let the tools in some modules draw from the generator of the case they run in.

    As with clocks, the name `random` in these modules is the only place where a generator can be put. Outside a
    case they draw from Python's own.
    """
    for module in modules:
        if vars(module).get("random") is random:
            vars(module)["random"] = _RANDOM_STAND_IN


class InsertionOrderedSet(set[Any]):
    """A set that is walked in the order in which its members came: at first, and one by one by `add`.

    What set operations (`|`, `-`) make of it is a plain set again.
    """

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._order = dict.fromkeys(members)
        super().__init__(self._order)

    def add(self, member: Any) -> None:
        """Take one in; the first time it comes says where it stands."""
        super().add(member)
        self._order.setdefault(member)

    def __iter__(self) -> Iterator[Any]:
        """Walk through a copy of the members: what was taken out since is passed over, what came otherwise is last."""
        rest = [one for one in set.__iter__(self) if one not in self._order]
        return iter([*(one for one in self._order if one in self), *rest])


def keep_set_order(suite: Suite) -> None:
    """Let `set(...)` in the modules of a suite's tools keep the order of what it is made of.

    The name is bound in these modules alone, once; modules with a `set` of their own stay as they are.
    """
    for name in find_tool_modules(suite):
        module = sys.modules.get(name)
        if module is not None:
            vars(module).setdefault("set", InsertionOrderedSet)


CallRunner = Callable[[], Sequence[str]]
"""Does a record's calls on a fresh environment and gives what each tool returns, as a model reads it."""
_CONTEXT_LENGTHS = (24, 12, 6)
"""Characters before a number by which its place is found again: fewer, where a clock's stamp stands there."""


def has_random_draws(suite: object) -> bool:
    """Whether a suite's tools draw at random."""
    return isinstance(suite, DrawsAtRandom) and suite.draws_at_random


def find_recorded_draws(execute: CallRunner, recorded: Sequence[str | None]) -> list[str | None]:
    """The numbers that `execute` drew when it brought the recorded texts, in order; None for one that none shows."""
    known: list[str | None] = []
    for _ in range(len(recorded) + 1):
        with (
            use_case_clock(parse_clock(DEFAULT_CLOCK)),
            use_case_random(CaseRandom(("recorded",), known)) as generator,
        ):
            today = execute()
        told = [_find_recorded_number(number, today, recorded) for number in generator.drawn_numbers]
        if told == known:
            break
        known = told
    return known


def repeat_calls(
    suite: Suite, environment: TaskEnvironment, calls: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[Any, str | None]]:
    """Make recorded calls on an environment, which changes as their values and errors are taken."""
    runtime = FunctionsRuntime(suite.tools)
    for recorded, args in calls:
        function = pick_current_tool_name(recorded, runtime.functions)
        if function in runtime.functions:
            yield runtime.run_function(environment, function, normalize_arguments(args))
        else:  # in the executor's words: such a call never reaches the runtime
            yield "", f"Invalid tool {function} provided."


def _find_recorded_number(number: str, today: Sequence[str], recorded: Sequence[str | None]) -> str | None:
    """What a record has in the place where a number stands today."""
    for length in _CONTEXT_LENGTHS:
        for now, then in zip(today, recorded, strict=False):
            place = now.find(number)
            if place < 0 or then is None:
                continue
            before = re.escape(now[max(0, place - length) : place])
            number_there = re.compile(rf"(?<={before})\d{{{len(number)}}}(?!\d)", re.DOTALL)
            earlier = len(number_there.findall(now[:place]))
            found = number_there.findall(then)
            if earlier < len(found):
                return str(found[earlier])
    return None
