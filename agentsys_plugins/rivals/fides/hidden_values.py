"""`HiddenValues`: the variables that replace values the planner may not read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, count
from typing import Any

from pydantic import BaseModel

from agentsys.base.json_values import map_texts
from agentsys.models.untrusted import Reader, Untrusted
from baselines.flow.labelled_values import FlowLabel, join_labels

VARIABLE_NAME = re.compile(r"#([A-Za-z_]\w*-result-\d+(?:\.[\w .:@-]{1,80})?)#")
"""Pattern of a variable's name."""


@dataclass(frozen=True)
class StoredVariable:
    """A stored value."""

    raw: Untrusted[Any]
    label: FlowLabel


@dataclass
class HiddenValues:
    """The variables of one task."""

    variables: dict[str, StoredVariable] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def name_result(self, tool: str) -> str:
        """Name the next result of a tool."""
        return f"{tool}-result-{next(self._numbers)}"

    def store_value(self, name: str, raw: Untrusted[Any], label: FlowLabel) -> str:
        """Store a value; returns how the planner writes it."""
        names = chain([name], (f"{name}:{number}" for number in count(1)))
        free = next(other for other in names if other not in self.variables)
        self.variables[free] = StoredVariable(raw, label)
        return f"#{free}#"

    def find_named(self, text: str) -> list[StoredVariable]:
        """Find the variables named in a text."""
        return [self.variables[name] for name in VARIABLE_NAME.findall(text) if name in self.variables]

    def expand_names(self, value: Any) -> Any:
        """Put values in place of names, which are looked for once: a value is never searched.

        A text that is one name becomes the value itself, so a number stays one.
        """

        def expand(text: str) -> Any:
            whole = VARIABLE_NAME.fullmatch(text.strip())
            if whole and whole[1] in self.variables:
                return read(whole[1])
            return VARIABLE_NAME.sub(insert, text)

        def insert(name: re.Match[str]) -> str:
            return str(read(name[1])) if name[1] in self.variables else name[0]

        def read(name: str) -> Any:  # For a tool or the user: the planner is not shown what comes of it.
            return self.variables[name].raw.open_for(Reader.GATE)

        return map_texts(value, expand)

    def label_argument(self, value: Any, conversation: FlowLabel) -> FlowLabel:
        """Join the conversation's label and those of the variables that an argument names."""
        named = [variable for text in _iterate_texts(value) for variable in self.find_named(text)]
        return join_labels([conversation, *(variable.label for variable in named)])


def _iterate_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in chain.from_iterable(value.items()) if isinstance(value, Mapping) else value:
            yield from _iterate_texts(part)


def convert_result_to_plain_data(raw: Any) -> Any:
    """Convert a result to plain data, for texts and for storing."""
    if isinstance(raw, BaseModel):
        return {name: convert_result_to_plain_data(getattr(raw, name)) for name in type(raw).model_fields}
    if isinstance(raw, Mapping):
        return {str(key): convert_result_to_plain_data(member) for key, member in raw.items()}
    if isinstance(raw, list | tuple | set):
        return [convert_result_to_plain_data(item) for item in raw]
    return raw.value if isinstance(raw, Enum) else raw


def neutralize_names(value: Any) -> Any:
    """Change data so that no text looks like a variable's name: forged names must not resolve."""
    if isinstance(value, Mapping):
        return {neutralize_names(key): neutralize_names(member) for key, member in value.items()}
    if isinstance(value, list):
        return [neutralize_names(item) for item in value]
    if not isinstance(value, str):
        return value
    while VARIABLE_NAME.search(value):
        value = VARIABLE_NAME.sub(r"# \1#", value)
    return value


@dataclass
class ResultHider:
    """Puts variables in place of what may not be read in one result."""

    store: HiddenValues
    name: str
    """Tool and number."""
    label_field: Callable[[Any, str | None], FlowLabel]
    """From a record and the name of one of its fields to the field's label."""
    must_hide: Callable[[FlowLabel], bool]
    """True if a value with this label becomes a variable."""
    shown: list[FlowLabel] = field(default_factory=list)
    """Labels of what stays in sight."""

    def hide_values(self, result: Any) -> Any:
        """Put names in place of values; what is deeper than a field inherits its label."""
        if isinstance(result, list | tuple):
            return [self._hide_record(item, f".{index}") for index, item in enumerate(result)]
        return self._hide_record(result, "")

    def _hide_record(self, record: Any, path: str) -> Any:
        if isinstance(record, BaseModel):
            fields = type(record).model_fields
            return {
                name: self._hide_node(getattr(record, name), record, name, f"{path}.{name}")
                for name in fields
            }
        if isinstance(record, Mapping):
            # Keys are structure, and stay in sight.
            return {
                neutralize_names(str(key)): self._hide_node(item, record, str(key), f"{path}.{number}")
                for number, (key, item) in enumerate(record.items())
            }
        return self._hide_node(record, record, None, path)

    def _hide_node(self, value: Any, record: Any, name: str | None, path: str) -> Any:
        label = self.label_field(record, name)
        if value is not None and self.must_hide(label):
            hidden = Untrusted(convert_result_to_plain_data(value))
            return self.store.store_value(f"{self.name}{path}", hidden, label)
        self.shown.append(label)
        return neutralize_names(convert_result_to_plain_data(value))
