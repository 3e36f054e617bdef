"""`CaseRandom`: what a case's tools draw at random, so that the same case is the same conversation each time.

AgentDyn's tools draw one-time codes and order numbers from the module `random`: two runs of a case would
differ, and a recorded run could not be executed again.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any

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
        return found if population != DIGITS else list(self._recorded_or("".join(found)))

    def randint(self, a: int, b: int) -> int:
        """Draw as the base class does, or the recorded number."""
        return int(self._recorded_or(str(super().randint(a, b))))

    def _recorded_or(self, own: str) -> str:
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

    As with clocks (agentsys.benchmarks.clock), the name `random` in these modules is the only place where a
    generator can be put. Outside a case they draw from Python's own.
    """
    for module in modules:
        if vars(module).get("random") is random:
            vars(module)["random"] = _RANDOM_STAND_IN
