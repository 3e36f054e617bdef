"""`Machine`: the state of a task's programs, the bounds they keep, and the errors they raise.

`ResourceUse` counts what programs have used of their `ProgramBounds`; `ProgramError` is an error for the
model that wrote the program, `CallDenied` ends it.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from baselines.flow.labelled_values import FROM_USER, NOWHERE, FlowLabel, Value, join_deeply, join_labels

RAISABLE = ("ValueError", "NotEnoughInformationError")
"""Exceptions that programs may make."""


class ProgramError(Exception):
    """An error of the program, for the model that wrote it: an exception's class and what went wrong.

    The text is shown only if `label`, of everything that it was made of, is trusted.
    """

    def __init__(self, kind: str, text: str, label: FlowLabel = FROM_USER) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.label = kind, text, label
        self.node: ast.AST | None = None
        """Where it happened: the innermost node."""

    def place_at_node(self, node: ast.AST) -> ProgramError:
        """Itself, placed at a node unless it has a place."""
        if self.node is None and hasattr(node, "lineno"):
            self.node = node
        return self


class CallDenied(Exception):
    """A policy does not allow a call: the rule, without a value. The program ends; its writer is not told."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool}: {reason}")
        self.tool, self.reason = tool, reason


def make_unsupported_error(what: str) -> ProgramError:
    """The error of a construct that the language does not have."""
    return ProgramError("SyntaxError", f"{what} not supported.")


@dataclass(frozen=True)
class ProgramBounds:
    """Bounds of one program. AgentDojo's programs stay a hundred times below."""

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


def make_resource_error(what: str) -> ProgramError:
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
        """Book steps."""
        self.steps += count
        if self.steps > self.bounds.steps:
            raise make_resource_error("steps")
        if self.steps % 256 < count and time.thread_time() > self._ends:
            raise make_resource_error("time")

    def count_value(self, value: Value) -> Value:
        """Book a new value and return it."""
        inside = len(value.list_parts())
        bounds = self.bounds
        if value.count > bounds.parts or value.size > bounds.text or value.depth > bounds.levels:
            raise make_resource_error("memory")
        self.count_steps(inside)
        self.kept += 1 + inside
        self.built += value.size if inside == 0 else 0
        if self.built > self.bounds.built or self.kept > self.bounds.kept:
            raise make_resource_error("memory")
        return value

    def check_text_length(self, length: int) -> None:
        """Look whether a text of this length may be made, before it is."""
        if length > self.bounds.text:
            raise make_resource_error("memory")

    def check_number_bits(self, bits: int) -> None:
        """Look whether a whole number of so many bits may be made, before it is."""
        if bits > self.bounds.bits:
            raise make_resource_error("memory")

    @contextmanager
    def pause_clock(self) -> Iterator[None]:
        """Time inside the block does not count: a tool or a model is at work."""
        start = time.thread_time()
        try:
            yield
        finally:
            self._ends += time.thread_time() - start


@dataclass(frozen=True, eq=False)
class FunctionValue(Value):
    """A provided function, by name."""

    name: str = ""


@dataclass(frozen=True, eq=False)
class ToolValue(Value):
    """A tool of the suite, or the quarantined model."""

    name: str = ""
    parameters: tuple[str, ...] = ()
    """Names, in the order of positional arguments."""
    reads: bool = False
    """Whether it is the quarantined model: in strict mode what it has read stays a control dependency."""


@dataclass(frozen=True, eq=False)
class ClassValue(Value):
    """A class: provided, or defined by the program."""

    name: str = ""
    of: type = object


@dataclass(frozen=True, eq=False)
class MethodValue(Value):
    """A method of a value, not called yet."""

    name: str = ""
    receiver: Value | None = None

    def list_parts(self) -> tuple[Value, ...]:
        """Its receiver."""
        return () if self.receiver is None else (self.receiver,)


@dataclass(frozen=True, eq=False)
class ErrorValue(Value):
    """An exception that the program has made."""

    name: str = ""
    text: Value | None = None

    def list_parts(self) -> tuple[Value, ...]:
        """Its text."""
        return () if self.text is None else (self.text,)


class ProgramWorld(Protocol):
    """World outside a program that it can reach."""

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        """Run a tool without the arguments that the program left out.

        `control` is the join of everything that decided that this call is made.

        Raises:
            CallDenied: If a policy does not allow it.
            ProgramError: If it failed.
        """


@dataclass
class Machine:
    """Variables, classes and control dependencies; they last over the programs of a task."""

    world: ProgramWorld
    provided: Mapping[str, Value]
    """Names that are there from the start and cannot be assigned."""
    strict: bool = False
    """Whether control dependencies are joined into what is assigned."""
    names: dict[str, Value] = field(default_factory=dict)
    classes: int = 0
    """How many classes the programs have defined."""
    controls: list[FlowLabel] = field(default_factory=list)
    """Labels of the tests and iterables around the current statement, outermost first. Where a program
    fails they stay: what is written next is written because of them."""
    lasting: FlowLabel = NOWHERE
    """What everything from now on depends on."""
    printed: list[Value] = field(default_factory=list)
    spending: ResourceUse = field(default_factory=lambda: ResourceUse(DEFAULT_BOUNDS))

    @property
    def control(self) -> FlowLabel:
        """All control dependencies joined."""
        return join_labels([self.lasting, *self.controls])

    def find_value(self, name: str) -> Value:
        """Find the value of a name."""
        value = self.names.get(name) or self.provided.get(name)
        if value is None:
            raise ProgramError("NameError", f"name '{name}' is not defined")
        return value

    def bind(self, name: str, value: Value) -> None:
        """Assign to a name."""
        if name in self.provided:
            text = f"'{name}' is provided and cannot be assigned. Choose another name."
            raise ProgramError("TypeError", text)
        self.names[name] = self.join(value, self.control) if self.strict else value

    def join(self, value: Value, label: FlowLabel) -> Value:
        """The value, with a label joined to all of it."""
        adds_nothing = value.label | label is value.label and (value.count == 1 or label == NOWHERE)
        if adds_nothing:
            return value
        self.spending.count_steps(value.count)
        return join_deeply(value, label)

    def from_container(self, part: Value, container: Value) -> Value:
        """A part, as it is taken out: in strict mode it depends on what it was taken from."""
        return self.join(part, container.label) if self.strict else part
