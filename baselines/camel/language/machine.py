"""`Machine`: the state of a task's programs, and what they need of the world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from baselines.camel.language.bounds import DEFAULT_BOUNDS, ResourceUse
from baselines.camel.language.failure import ProgramError
from baselines.flow.label import NOWHERE, FlowLabel, join_labels
from baselines.flow.values import Value, join_deeply


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

    def parts(self) -> tuple[Value, ...]:
        """Its receiver."""
        return () if self.receiver is None else (self.receiver,)


@dataclass(frozen=True, eq=False)
class ErrorValue(Value):
    """An exception that the program has made."""

    name: str = ""
    text: Value | None = None

    def parts(self) -> tuple[Value, ...]:
        """Its text."""
        return () if self.text is None else (self.text,)


class ProgramWorld(Protocol):
    """What a program can reach outside itself."""

    def call(self, tool: str, arguments: Mapping[str, Value], control: FlowLabel) -> Value:
        """Run a tool.

        Args:
            tool: Its name.
            arguments: By name; what the program left out is not there.
            control: The join of everything that decided that this call is made.

        Raises:
            CallDenied: If a policy does not allow it.
            ProgramError: If it failed.
        """
        ...


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

    def lookup(self, name: str) -> Value:
        """The value of a name.

        Raises:
            ProgramError: If there is none.
        """
        found = self.names.get(name) or self.provided.get(name)
        if found is None:
            raise ProgramError("NameError", f"name '{name}' is not defined")
        return found

    def bind(self, name: str, value: Value) -> None:
        """Assign to a name.

        Raises:
            ProgramError: If the name is provided.
        """
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
