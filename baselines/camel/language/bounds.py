"""`Bounds` of a program, and `Spending`: what it has used of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from baselines.camel.language.failure import ProgramError
from baselines.flow.values import Value


@dataclass(frozen=True)
class ProgramBounds:
    """What one program may use. AgentDojo's programs stay a hundred times below."""

    source: int = 40_000
    """Characters of a program."""
    nodes: int = 8_000
    """Nodes of its syntax tree."""
    depth: int = 60
    """Levels of its syntax tree."""
    steps: int = 60_000
    """Nodes evaluated and parts made, by one program."""
    text: int = 1_000_000
    """Characters of one text, and parts and characters of one value."""
    parts: int = 30_000
    """Parts of one value."""
    levels: int = 40
    """Levels of parts of one value."""
    built: int = 5_000_000
    """Characters made by all programs of a task."""
    kept: int = 200_000
    """Parts made by all programs of a task."""
    bits: int = 4_096
    """Bits of a whole number."""
    width: int = 1_000
    """Width or precision in a format."""
    seconds: float = 5.0
    """Time on the processor of one program, tools and models not counted."""
    classes: int = 50
    """Classes that the programs of a task may define."""


DEFAULT_BOUNDS = ProgramBounds()


def resource_error(what: str) -> ProgramError:
    """The error of a program that wants too much. It holds no value."""
    return ProgramError("ResourceError", f"the program needs too much {what}")


class ResourceUse:
    """Counts what the programs of one task use."""

    def __init__(self, bounds: ProgramBounds) -> None:
        self.bounds = bounds
        self.steps = self.built = self.kept = 0
        self._ends = 0.0

    def begin_program(self) -> None:
        """A new program begins."""
        self.steps = 0
        self._ends = time.thread_time() + self.bounds.seconds

    def count_steps(self, count: int = 1) -> None:
        """Book steps.

        Raises:
            ProgramError: If there were too many, or too much time is gone.
        """
        self.steps += count
        if self.steps > self.bounds.steps:
            raise resource_error("steps")
        if self.steps % 256 < count and time.thread_time() > self._ends:
            raise resource_error("time")

    def count_value(self, value: Value) -> Value:
        """Book a new value and return it.

        Raises:
            ProgramError: If it, or all of them together, are too large.
        """
        inside = len(value.parts())
        bounds = self.bounds
        if value.count > bounds.parts or value.size > bounds.text or value.depth > bounds.levels:
            raise resource_error("memory")
        self.count_steps(inside)
        self.kept += 1 + inside
        self.built += value.size if inside == 0 else 0
        if self.built > self.bounds.built or self.kept > self.bounds.kept:
            raise resource_error("memory")
        return value

    def check_text_length(self, length: int) -> None:
        """Look whether a text of this length may be made, before it is.

        Raises:
            ProgramError: If it would be too long.
        """
        if length > self.bounds.text:
            raise resource_error("memory")

    def check_number_bits(self, bits: int) -> None:
        """Look whether a whole number of so many bits may be made, before it is.

        Raises:
            ProgramError: If it would be too large.
        """
        if bits > self.bounds.bits:
            raise resource_error("memory")

    @contextmanager
    def pause_clock(self) -> Iterator[None]:
        """Time inside the block does not count: a tool or a model is at work."""
        start = time.thread_time()
        try:
            yield
        finally:
            self._ends += time.thread_time() - start
