"""Makes tools repeatable: a clock and random numbers for each case, and sets that keep their order.

The same case is then the same conversation each time, so that cached replies of an earlier run can be used.

* `CaseClock`: tools stamp mails and files with `datetime.now()`, and models read the stamps.
* `CaseRandom`: AgentDyn's tools draw one-time codes and order numbers from the module `random`.
  `find_recorded_draws` recovers the numbers of a recorded case: its calls are repeated with our own numbers; in the
  place of one of these the recorded text has the original number, with which the repeated calls get further, to the
  next number.
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

from agentsys.contracts import Suite
from agentsys.errors import ConfigError
from agentsys.models.pipeline_elements import normalize_arguments
from agentsys.models.recorded_runs import pick_current_tool_name

REAL_CLOCK = "real"
"""Value of `benchmark.clock` for the machine's clock."""
DEFAULT_CLOCK = "2025-01-01 12:00:00.5"
"""Start of a case's clock, the same for all runs, so that two runs agree.

Later than every date in AgentDojo's data (the last is 12 July 2024), like the time of every published run, so that
sorting by date gives the same order. The half second marks its stamps: no date in the data has fractions, and
re-scoring recognizes stamps by them.
"""
_STEP = datetime.timedelta(seconds=1)


class CaseClock:
    """A clock that advances by a second each time it is read, so that later actions have later stamps."""

    def __init__(self, start: datetime.datetime) -> None:
        self._next = start
        self._lock = threading.Lock()  # A defense may run tools in parallel.

    def now(self, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        """Return the time; with `tz`, converted from the machine's time zone."""
        with self._lock:
            read, self._next = self._next, self._next + _STEP
        return read if tz is None else read.astimezone(tz)

    def copy(self) -> CaseClock:
        """Return a clock that goes on from here by itself."""
        return CaseClock(self._next)


_CURRENT_CLOCK: ContextVar[CaseClock | None] = ContextVar("agentsys_clock", default=None)


@contextmanager
def use_case_clock(start: datetime.datetime | None) -> Iterator[None]:
    """Make tools in this context read a case's clock inside the block; None: the machine's clock."""
    token = _CURRENT_CLOCK.set(None if start is None else CaseClock(start))
    try:
        yield
    finally:
        _CURRENT_CLOCK.reset(token)


def parse_clock(value: object) -> datetime.datetime | None:
    """Parse `benchmark.clock`; None stands for the machine's clock.

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
    """Replaces `datetime.datetime` or `datetime.date` in tools' modules; only the current time is the case's.

    Not a subclass: values that tools create must be of the real class, to be equal to, and stored like, those in the
    environment.
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
    """Replaces the module `datetime` in tools' modules."""

    datetime, date = _DATETIME, _DATE

    def __getattr__(self, name: str) -> Any:
        return getattr(datetime, name)


_STAND_INS: dict[int, object] = {
    id(datetime): _ClockModule(),
    id(datetime.datetime): _DATETIME,
    id(datetime.date): _DATE,
}


def install_case_clocks(suite: Suite, further: Iterable[ModuleType] = ()) -> None:
    """Make a suite's tools read the clock of their case.

    AgentDojo's tools call `datetime.datetime.now()` in methods of the environment's models; a clock can only be
    substituted in their modules' own namespaces. So the names `datetime` (the module, or the class) and `date` of
    these modules are bound to stand-ins, once. Python's `datetime` and other modules are not changed. Outside a case
    a stand-in reads the machine's clock, so that other users of these modules see no difference.

    Args:
        suite: The suite.
        further: Modules of its tools that cannot be found from the suite itself.
    """
    modules = (sys.modules.get(name) for name in find_tool_modules(suite))
    for module in (*(module for module in modules if module is not None), *further):
        for key, value in list(vars(module).items()):
            if id(value) in _STAND_INS:
                vars(module)[key] = _STAND_INS[id(value)]


def find_tool_modules(suite: Suite) -> set[str]:
    """Names of the modules that hold a suite's tools and its environment's models."""
    models: set[type[BaseModel]] = set()
    _collect(suite.environment_type, models)
    return {tool.run.__module__ for tool in suite.tools} | {model.__module__ for model in models}


def _collect(annotation: Any, models: set[type[BaseModel]]) -> None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in models:
        models.add(annotation)
        for field in annotation.model_fields.values():
            _collect(field.annotation, models)
    for inner in get_args(annotation):
        _collect(inner, models)


DIGITS = "0123456789"


class CaseRandom(random.Random):
    """A generator that returns a case's recorded numbers first, then numbers from its seed.

    Args:
        key: Seed: the same key gives the same draws.
        recorded: Numbers, as text, that were drawn when the case was recorded, in order; None for an unknown one.
    """

    def __init__(self, key: Sequence[object], recorded: Sequence[str | None] = ()) -> None:
        text = json.dumps([str(part) for part in key])
        super().__init__(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
        self._recorded = tuple(recorded)
        self.drawn_numbers: list[str] = []
        """The numbers drawn so far, as text."""

    def choices(self, population: Any, *args: Any, **options: Any) -> list[Any]:
        """Draw as the base class does; for the digits of a code, return the recorded code if there is one."""
        own = super().choices(population, *args, **options)
        return own if population != DIGITS else list(self._draw_recorded_or_own("".join(own)))

    def randint(self, a: int, b: int) -> int:
        """Draw as the base class does, or return the recorded number."""
        return int(self._draw_recorded_or_own(str(super().randint(a, b))))

    def copy(self) -> CaseRandom:
        """Return a generator that goes on from here by itself."""
        twin = CaseRandom((), self._recorded)
        twin.setstate(self.getstate())
        twin.drawn_numbers = list(self.drawn_numbers)
        return twin

    def _draw_recorded_or_own(self, own: str) -> str:
        index = len(self.drawn_numbers)
        recorded = self._recorded[index] if index < len(self._recorded) else None
        self.drawn_numbers.append(own if recorded is None or len(recorded) != len(own) else recorded)
        return self.drawn_numbers[-1]


_CURRENT_RANDOM: ContextVar[CaseRandom | None] = ContextVar("agentsys_random", default=None)


@contextmanager
def use_case_random(generator: CaseRandom) -> Iterator[CaseRandom]:
    """Make tools in this context draw from a case's generator inside the block."""
    token = _CURRENT_RANDOM.set(generator)
    try:
        yield generator
    finally:
        _CURRENT_RANDOM.reset(token)


@contextmanager
def use_copied_state() -> Iterator[None]:
    """Give tools inside the block copies of the case's clock and generator, so that these stay as they are."""
    clock, generator = _CURRENT_CLOCK.get(), _CURRENT_RANDOM.get()
    tokens = (
        _CURRENT_CLOCK.set(None if clock is None else clock.copy()),
        _CURRENT_RANDOM.set(None if generator is None else generator.copy()),
    )
    try:
        yield
    finally:
        _CURRENT_CLOCK.reset(tokens[0])
        _CURRENT_RANDOM.reset(tokens[1])


class _RandomModule:
    """Replaces the module `random` in tools' modules; the current case's generator draws."""

    def __getattr__(self, name: str) -> Any:
        return getattr(_CURRENT_RANDOM.get() or random, name)


_RANDOM_STAND_IN = _RandomModule()


def install_case_random(modules: Iterable[ModuleType]) -> None:
    """Make the tools in these modules draw from the generator of their case.

    As with clocks, only the name `random` in these modules can be replaced. Outside a case Python's own generator
    draws.
    """
    for module in modules:
        if vars(module).get("random") is random:
            vars(module)["random"] = _RANDOM_STAND_IN


class InsertionOrderedSet(set[Any]):
    """A set that iterates in order of insertion, by its constructor and `add`.

    Set operations (`|`, `-`) return a plain set.
    """

    def __init__(self, members: Iterable[Any] = ()) -> None:
        self._order = dict.fromkeys(members)
        super().__init__(self._order)

    def add(self, member: Any) -> None:
        """Add a member; its first insertion decides its position."""
        super().add(member)
        self._order.setdefault(member)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over a copy of the members in order; members added in other ways come last."""
        rest = [member for member in set.__iter__(self) if member not in self._order]
        return iter([*(member for member in self._order if member in self), *rest])


def keep_set_order(suite: Suite) -> None:
    """Make `set(...)` in the modules of a suite's tools keep its members' order.

    The name is bound in these modules only, once; a module with its own `set` keeps it.
    """
    for name in find_tool_modules(suite):
        module = sys.modules.get(name)
        if module is not None:
            vars(module).setdefault("set", InsertionOrderedSet)


CallRunner = Callable[[], Sequence[str]]
"""Repeats a record's calls on a fresh environment and returns the results as a model reads them."""
_CONTEXT_LENGTHS = (24, 12, 6)
"""Lengths of the text before a number by which its place is found again; shorter ones exclude a clock's stamp."""


def find_recorded_draws(execute: CallRunner, recorded: Sequence[str | None]) -> list[str | None]:
    """Recover the numbers that were drawn for the recorded texts, in order; None for a number that no text shows."""
    known: list[str | None] = []
    for _ in range(len(recorded) + 1):
        with (
            use_case_clock(parse_clock(DEFAULT_CLOCK)),
            use_case_random(CaseRandom(("recorded",), known)) as generator,
        ):
            today = execute()
        numbers = [_find_recorded_number(number, today, recorded) for number in generator.drawn_numbers]
        if numbers == known:
            break
        known = numbers
    return known


def repeat_calls(
    suite: Suite, environment: TaskEnvironment, calls: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[Any, str | None]]:
    """Yield value and error of each recorded call, made on an environment, which it changes."""
    runtime = FunctionsRuntime(suite.tools)
    for recorded, args in calls:
        function = pick_current_tool_name(recorded, runtime.functions)
        if function in runtime.functions:
            yield runtime.run_function(environment, function, normalize_arguments(args))
        else:  # The executor's words: such a call never reaches the runtime.
            yield "", f"Invalid tool {function} provided."


def _find_recorded_number(number: str, today: Sequence[str], recorded: Sequence[str | None]) -> str | None:
    """Find the number that a record has where today's results have `number`; None if there is no such place.

    The place is found by the text before the number. If that text comes several times, the places are counted: the
    third place today is the third place in the record. `today` and `recorded` are the results, call by call.
    """
    for length in _CONTEXT_LENGTHS:
        for now, then in zip(today, recorded, strict=False):
            position = now.find(number)
            if position < 0 or then is None:
                continue
            before = re.escape(now[max(0, position - length) : position])
            number_there = re.compile(rf"(?<={before})\d{{{len(number)}}}(?!\d)", re.DOTALL)
            earlier = len(number_there.findall(now[:position]))
            matches = number_there.findall(then)
            if earlier < len(matches):
                return str(matches[earlier])
    return None
