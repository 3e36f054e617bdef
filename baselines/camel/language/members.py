"""What stands behind a dot or in brackets: fields, table attributes, methods, items."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from enum import Enum, EnumMeta
from operator import attrgetter
from typing import Any

from baselines.camel.language.failure import ProgramError
from baselines.camel.language.machine import ClassValue, Machine, MethodValue
from baselines.camel.language.methods import has_method
from baselines.camel.language.operators import dictionary_key
from baselines.camel.language.rendering import type_name
from baselines.flow.label_table import to_value
from baselines.flow.values import Dictionary, Instance, Scalar, Series, Value


def _getters(*names: str) -> Mapping[str, Callable[[Any], Any]]:
    return {name: attrgetter(name) for name in names}


_DATE_GETTERS = _getters("year", "month", "day")
_TIME_GETTERS = _getters("hour", "minute", "second", "microsecond", "tzinfo")
_ATTRIBUTE_TABLES: tuple[tuple[type, Mapping[str, Callable[[Any], Any]]], ...] = (
    (Enum, _getters("value", "name")),
    (datetime.datetime, {**_DATE_GETTERS, **_TIME_GETTERS}),
    (datetime.date, _DATE_GETTERS),
    (datetime.time, _TIME_GETTERS),
    (datetime.timedelta, _getters("days", "seconds", "microseconds")),
)


def get_attribute(machine: Machine, holder: Value, name: str) -> Value:
    """The value of an attribute: a field, an entry of the tables above, or a method.

    Raises:
        ProgramError: If the tables do not have it. Python's own attributes are never looked at.
    """
    if isinstance(holder, Instance) and name in holder.fields:
        return machine.join(holder.fields[name], holder.label)
    if isinstance(holder, ClassValue) and isinstance(holder.of, EnumMeta) and name in holder.of.__members__:
        return Scalar(holder.label, holder.of.__members__[name])
    if isinstance(holder, Scalar):
        for kind, table in _ATTRIBUTE_TABLES:
            if isinstance(holder.raw, kind) and name in table:
                return to_value(table[name](holder.raw), holder.label)
    if has_method(holder, name):
        return MethodValue(holder.label, name, holder)
    text = f"'{type_name(holder)}' object has no attribute '{name}'"
    raise ProgramError("AttributeError", text, holder.full)


def list_attributes(holder: Value) -> list[str]:
    """Fields of an object and table attributes, for `dir`."""
    if isinstance(holder, Instance):
        return list(holder.fields)
    raw = holder.raw if isinstance(holder, Scalar) else None
    return [name for kind, table in _ATTRIBUTE_TABLES if isinstance(raw, kind) for name in table]


def get_item(machine: Machine, holder: Value, index: Value) -> Value:
    """What stands at an index or key. It depends on the index as well.

    Raises:
        ProgramError: If there is nothing, or the value has no items.
    """
    if isinstance(holder, Dictionary):
        key = dictionary_key(index)
        if key not in holder.entries:
            raise ProgramError("KeyError", _key_text(index), holder.label | index.full)
        stored, value = holder.entries[key]
        return machine.from_container(machine.join(value, stored.full | index.full), holder)
    place = _checked_index(holder, index)
    if isinstance(holder, Series):
        return machine.from_container(machine.join(holder.items[place], index.full), holder)
    assert isinstance(holder, Scalar)
    return Scalar(holder.full | index.full, holder.raw[place])


def replace_item(machine: Machine, holder: Value, index: Value, value: Value) -> Value:
    """A copy of a list or dict in which something else stands at an index or key."""
    if isinstance(holder, Dictionary):
        entries = {**holder.entries, dictionary_key(index): (index, value)}
        return machine.spending.count_value(Dictionary(holder.label | index.full, entries))
    if not isinstance(holder, Series) or holder.kind != "list":
        text = f"'{type_name(holder)}' object does not support item assignment"
        raise ProgramError("TypeError", text, holder.full)
    place = _checked_index(holder, index)
    items = tuple(value if at == place else kept for at, kept in enumerate(holder.items))
    # Which of the items was replaced depends on the index, so each of them does.
    changed = [machine.join(one, index.full) for one in items]
    return machine.spending.count_value(Series(holder.label | index.full, "list", tuple(changed)))


def replace_attribute(machine: Machine, holder: Value, name: str, value: Value) -> Value:
    """A copy of an object with another value in a field."""
    if not isinstance(holder, Instance) or name not in holder.fields:
        raise ProgramError(
            "AttributeError", f"'{type_name(holder)}' object has no field '{name}'", holder.full
        )
    return machine.spending.count_value(Instance(holder.label, holder.of, {**holder.fields, name: value}))


def _checked_index(holder: Value, index: Value) -> int:
    """The index, counted from the start."""
    sequence: Any = None
    if isinstance(holder, Series) and holder.kind != "set":
        sequence = holder.items
    elif isinstance(holder, Scalar) and isinstance(holder.raw, str):
        sequence = holder.raw
    if sequence is None:
        text = f"'{type_name(holder)}' object is not subscriptable"
        raise ProgramError("TypeError", text, holder.full)
    raw = index.raw if isinstance(index, Scalar) else None
    if not isinstance(raw, int):
        text = f"{type_name(holder)} indices must be integers, not {type_name(index)}"
        raise ProgramError("TypeError", text, holder.full | index.full)
    if not -len(sequence) <= raw < len(sequence):
        text = f"{type_name(holder)} index out of range"
        raise ProgramError("IndexError", text, holder.label | index.full)
    return raw % len(sequence)


def _key_text(index: Value) -> str:
    """The key alone: what the dictionary holds is not for an error text."""
    return repr(index.raw) if isinstance(index, Scalar) else type_name(index)
