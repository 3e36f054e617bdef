"""Variables: values that the planner names and does not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel

from baselines.flow.label import FlowLabel

NAME = re.compile(r"#([A-Za-z_]\w*-result-\d+(?:\.[\w .:@-]{1,80})?)#")
"""What a variable looks like."""


@dataclass(frozen=True)
class Variable:
    """A stored value."""

    raw: Any
    label: FlowLabel


@dataclass
class HiddenValues:
    """The variables of one task."""

    held: dict[str, Variable] = field(default_factory=dict)
    results: int = 0
    """How many results have been numbered."""

    def number(self) -> int:
        """The next result's number."""
        self.results += 1
        return self.results - 1

    def keep(self, name: str, raw: Any, label: FlowLabel) -> str:
        """Store a value; returns how the planner writes it."""
        free, count = name, 1
        while free in self.held:
            free, count = f"{name}:{count}", count + 1
        self.held[free] = Variable(raw, label)
        return f"#{free}#"

    def named(self, text: str) -> list[Variable]:
        """The variables whose names stand in a text."""
        return [self.held[name] for name in NAME.findall(text) if name in self.held]

    def find(self, name: str) -> Variable | None:
        """The variable that a text names, with or without its signs."""
        return self.held.get(name.strip().strip("#"))

    def expanded(self, value: Any) -> Any:
        """An argument with values in place of names, which are looked for once: a value is never searched.

        A text that is one name becomes the value itself, so a number stays one.
        """
        if isinstance(value, Mapping):
            return {key: self.expanded(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.expanded(held) for held in value]
        if not isinstance(value, str):
            return value
        whole = NAME.fullmatch(value.strip())
        if whole and whole[1] in self.held:
            return self.held[whole[1]].raw
        return NAME.sub(lambda found: self._text(found), value)

    def label(self, value: Any, conversation: FlowLabel) -> FlowLabel:
        """The label of an argument: the conversation's, and those of the variables it names."""
        label = conversation
        for text in _texts(value):
            for variable in self.named(text):
                label = label | variable.label
        return label

    def _text(self, found: re.Match[str]) -> str:
        return as_text(self.held[found[1]].raw) if found[1] in self.held else found[0]


def _texts(value: Any) -> list[str]:
    """The texts in an argument, keys included."""
    if isinstance(value, Mapping):
        return [text for entry in value.items() for part in entry for text in _texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def as_text(raw: Any) -> str:
    """A stored value inside a text."""
    return raw if isinstance(raw, str) else str(raw)


def plain(raw: Any) -> Any:
    """A result as plain data, for texts and for storing."""
    if isinstance(raw, BaseModel):
        return {name: plain(getattr(raw, name)) for name in type(raw).model_fields}
    if isinstance(raw, Mapping):
        return {str(key): plain(held) for key, held in raw.items()}
    if isinstance(raw, list | tuple | set):
        return [plain(item) for item in raw]
    return raw.value if isinstance(raw, Enum) else raw


def harmless(value: Any) -> Any:
    """Data in which nothing looks like a variable: what only looks like one must not become one."""
    if isinstance(value, Mapping):
        return {harmless(key): harmless(held) for key, held in value.items()}
    if isinstance(value, list):
        return [harmless(item) for item in value]
    if not isinstance(value, str):
        return value
    while NAME.search(value):
        value = NAME.sub(lambda found: f"# {found[1]}#", value)
    return value


Labeller = Callable[[Any, str | None], FlowLabel]
"""From a record and the name of one of its fields to the field's label."""
Hides = Callable[[FlowLabel], bool]
"""Whether what has this label becomes a variable."""


@dataclass
class Hider:
    """Puts variables in place of what may not be read in one result."""

    store: HiddenValues
    name: str
    """Tool and number."""
    label: Labeller
    hides: Hides
    shown: list[FlowLabel] = field(default_factory=list)
    """Labels of what stays in sight."""

    def shape(self, result: Any) -> Any:
        """The result with names in place of values; what is deeper than a field inherits its label."""
        if isinstance(result, list | tuple):
            return [self._record(item, f".{place}") for place, item in enumerate(result)]
        return self._record(result, "")

    def _record(self, record: Any, place: str) -> Any:
        if isinstance(record, BaseModel):
            names = type(record).model_fields
            joint = f"{place}." if place else "."
            return {name: self._node(getattr(record, name), record, name, f"{joint}{name}") for name in names}
        if isinstance(record, Mapping):
            joint = f"{place}." if place else "."
            # Keys are structure, and stay in sight.
            return {
                harmless(str(key)): self._node(held, record, str(key), f"{joint}{number}")
                for number, (key, held) in enumerate(record.items())
            }
        return self._node(record, record, None, place)

    def _node(self, value: Any, record: Any, name: str | None, place: str) -> Any:
        label = self.label(record, name)
        if value is not None and self.hides(label):
            return self.store.keep(f"{self.name}{place}", plain(value), label)
        self.shown.append(label)
        return harmless(plain(value))
