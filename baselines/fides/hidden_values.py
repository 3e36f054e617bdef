"""`HiddenValues`: the variables that stand for what the planner may not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel

from baselines.flow.labelled_values import FlowLabel

VARIABLE_NAME = re.compile(r"#([A-Za-z_]\w*-result-\d+(?:\.[\w .:@-]{1,80})?)#")
"""What a variable looks like."""


@dataclass(frozen=True)
class StoredVariable:
    """A stored value."""

    raw: Any
    label: FlowLabel


@dataclass
class HiddenValues:
    """The variables of one task."""

    variables: dict[str, StoredVariable] = field(default_factory=dict)
    results: int = 0
    """How many results have been numbered."""

    def next_number(self) -> int:
        """The next result's number."""
        self.results += 1
        return self.results - 1

    def store_value(self, name: str, raw: Any, label: FlowLabel) -> str:
        """Store a value; returns how the planner writes it."""
        free, count = name, 1
        while free in self.variables:
            free, count = f"{name}:{count}", count + 1
        self.variables[free] = StoredVariable(raw, label)
        return f"#{free}#"

    def find_named(self, text: str) -> list[StoredVariable]:
        """The variables whose names stand in a text."""
        return [self.variables[name] for name in VARIABLE_NAME.findall(text) if name in self.variables]

    def find_variable(self, name: str) -> StoredVariable | None:
        """The variable that a text names, with or without its signs."""
        return self.variables.get(name.strip().strip("#"))

    def expand_names(self, value: Any) -> Any:
        """An argument with values in place of names, which are looked for once: a value is never searched.

        A text that is one name becomes the value itself, so a number stays one.
        """
        if isinstance(value, Mapping):
            return {key: self.expand_names(held) for key, held in value.items()}
        if isinstance(value, list | tuple):
            return [self.expand_names(held) for held in value]
        if not isinstance(value, str):
            return value
        whole = VARIABLE_NAME.fullmatch(value.strip())
        if whole and whole[1] in self.variables:
            return self.variables[whole[1]].raw
        return VARIABLE_NAME.sub(lambda found: self._insert_value(found), value)

    def label_argument(self, value: Any, conversation: FlowLabel) -> FlowLabel:
        """The label of an argument: the conversation's, and those of the variables it names."""
        label = conversation
        for text in _iterate_texts(value):
            for variable in self.find_named(text):
                label = label | variable.label
        return label

    def _insert_value(self, found: re.Match[str]) -> str:
        return write_value(self.variables[found[1]].raw) if found[1] in self.variables else found[0]


def _iterate_texts(value: Any) -> list[str]:
    """The texts in an argument, keys included."""
    if isinstance(value, Mapping):
        return [text for entry in value.items() for part in entry for text in _iterate_texts(part)]
    if isinstance(value, list | tuple):
        return [text for part in value for text in _iterate_texts(part)]
    return [value] if isinstance(value, str) else []


def write_value(raw: Any) -> str:
    """A stored value inside a text."""
    return raw if isinstance(raw, str) else str(raw)


def result_to_plain_data(raw: Any) -> Any:
    """A result as plain data, for texts and for storing."""
    if isinstance(raw, BaseModel):
        return {name: result_to_plain_data(getattr(raw, name)) for name in type(raw).model_fields}
    if isinstance(raw, Mapping):
        return {str(key): result_to_plain_data(held) for key, held in raw.items()}
    if isinstance(raw, list | tuple | set):
        return [result_to_plain_data(item) for item in raw]
    return raw.value if isinstance(raw, Enum) else raw


def neutralize_names(value: Any) -> Any:
    """Data in which nothing looks like a variable: what only looks like one must not become one."""
    if isinstance(value, Mapping):
        return {neutralize_names(key): neutralize_names(held) for key, held in value.items()}
    if isinstance(value, list):
        return [neutralize_names(item) for item in value]
    if not isinstance(value, str):
        return value
    while VARIABLE_NAME.search(value):
        value = VARIABLE_NAME.sub(lambda found: f"# {found[1]}#", value)
    return value


FieldLabeller = Callable[[Any, str | None], FlowLabel]
"""From a record and the name of one of its fields to the field's label."""
HideTest = Callable[[FlowLabel], bool]
"""Whether what has this label becomes a variable."""


@dataclass
class ResultHider:
    """Puts variables in place of what may not be read in one result."""

    store: HiddenValues
    name: str
    """Tool and number."""
    label: FieldLabeller
    hides: HideTest
    shown: list[FlowLabel] = field(default_factory=list)
    """Labels of what stays in sight."""

    def hide_values(self, result: Any) -> Any:
        """The result with names in place of values; what is deeper than a field inherits its label."""
        if isinstance(result, list | tuple):
            return [self._hide_record(item, f".{place}") for place, item in enumerate(result)]
        return self._hide_record(result, "")

    def _hide_record(self, record: Any, place: str) -> Any:
        if isinstance(record, BaseModel):
            names = type(record).model_fields
            joint = f"{place}." if place else "."
            return {
                name: self._hide_node(getattr(record, name), record, name, f"{joint}{name}") for name in names
            }
        if isinstance(record, Mapping):
            joint = f"{place}." if place else "."
            # Keys are structure, and stay in sight.
            return {
                neutralize_names(str(key)): self._hide_node(held, record, str(key), f"{joint}{number}")
                for number, (key, held) in enumerate(record.items())
            }
        return self._hide_node(record, record, None, place)

    def _hide_node(self, value: Any, record: Any, name: str | None, place: str) -> Any:
        label = self.label(record, name)
        if value is not None and self.hides(label):
            return self.store.store_value(f"{self.name}{place}", result_to_plain_data(value), label)
        self.shown.append(label)
        return neutralize_names(result_to_plain_data(value))
