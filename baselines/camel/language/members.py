"""Methods, attributes and items of labelled values, looked up by name in tables.

No attribute of a Python object is ever reached by a name from the program.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum, EnumMeta
from operator import attrgetter
from typing import Any

from pydantic_core import to_json

from baselines.camel.language.machine import ClassValue, Machine, MethodValue, ProgramError
from baselines.camel.language.operators import (
    PYTHON_ERRORS,
    check_date_format,
    compute_plain,
    format_text,
    make_dictionary_key,
    write_type_name,
)
from baselines.flow.labelled_values import (
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Series,
    Value,
    join_labels,
    make_literal,
    to_native,
    to_value,
)

_TEXT_METHODS = (
    *("capitalize", "casefold", "center", "count", "endswith", "expandtabs", "find", "index", "isalnum"),
    *("isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable"),
    *("isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "partition", "removeprefix"),
    *("removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip", "split"),
    *("splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill"),
)
_DATE_METHODS = ("isoformat", "strftime", "weekday", "isoweekday", "replace")
_ON_DATES: Mapping[type, tuple[str, ...]] = {
    datetime.datetime: (*_DATE_METHODS, "date", "time", "timestamp", "timetz"),
    datetime.date: _DATE_METHODS,
    datetime.time: ("isoformat", "strftime", "replace"),
    datetime.timedelta: ("total_seconds",),
}
_NATIVE_METHODS: Mapping[tuple[type, str], Callable[..., Any]] = {
    **{(str, name): getattr(str, name) for name in _TEXT_METHODS},
    **{(kind, name): getattr(kind, name) for kind, names in _ON_DATES.items() for name in names},
}
"""Type and method -> the function itself. Found once, here; never by a name from a program."""
_OF_CLASSES: Mapping[tuple[type, str], Callable[..., Any]] = {
    (datetime.datetime, "fromisoformat"): datetime.datetime.fromisoformat,
    (datetime.datetime, "strptime"): datetime.datetime.strptime,
    (datetime.datetime, "combine"): datetime.datetime.combine,
    (datetime.date, "fromisoformat"): datetime.date.fromisoformat,
    (datetime.time, "fromisoformat"): datetime.time.fromisoformat,
}
_KINDS = (str, datetime.datetime, datetime.date, datetime.time, datetime.timedelta)


def list_methods(holder: Value) -> list[str]:
    """List the names of a value's methods."""
    match holder:
        case Dictionary():
            return ["get", "items", "keys", "values"]
        case Series(kind=kind) if kind != "set":
            return ["index", "count"]
        case Instance():
            return ["model_dump", "model_dump_json", "dict"]
        case Scalar(raw=raw):
            receiver = _find_receiver_kind(raw)
            names = [name for kind, name in _NATIVE_METHODS if kind is receiver]
            return ["format", *names] if receiver is str else names
    return [name for kind, name in _OF_CLASSES if kind is getattr(holder, "of", None)]


def call_method(
    machine: Machine, holder: Value, name: str, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Call a method."""
    label = join_labels([holder.full, *(value.full for value in (*given, *named.values()))])
    if isinstance(holder, Dictionary):
        return _call_dictionary_method(machine, holder, name, given, named)
    if isinstance(holder, Instance):
        return _call_object_method(machine, holder, name, label)
    arguments = [to_native(value) for value in given]
    keywords = {key: to_native(value) for key, value in named.items()}
    if isinstance(holder, Series):
        listed: Callable[..., Any] = list.index if name == "index" else list.count
        items = [to_native(item) for item in holder.items]
        return compute_plain(machine, lambda: listed(items, *arguments, **keywords), label)
    if not isinstance(holder, Scalar):
        return _call_class_method(machine, holder, name, arguments, label)
    raw, kind = holder.raw, _find_receiver_kind(holder.raw)
    assert kind is not None
    if kind is str:
        raw = str(raw.value) if isinstance(raw, Enum) else str(raw)
        if name == "format":
            limits = machine.spending.bounds.width, machine.spending.bounds.text
            return compute_plain(machine, lambda: format_text(raw, given, named, label, limits), label)
        _check_text_result(machine, raw, name, arguments, keywords, label)
    elif name == "strftime":
        _check_dates(arguments)
    native = _NATIVE_METHODS[kind, name]
    return compute_plain(machine, lambda: native(raw, *arguments, **keywords), label)


def _find_receiver_kind(raw: Any) -> type | None:
    if isinstance(raw, bool):
        return None
    return next((kind for kind in _KINDS if isinstance(raw, kind)), None)


def _call_dictionary_method(
    machine: Machine, holder: Dictionary, name: str, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    entries = [
        (machine.from_container(key, holder), machine.from_container(machine.join(value, key.full), holder))
        for key, value in holder.entries.values()
    ]
    if name == "get":
        if named or not 1 <= len(given) <= 2:
            raise ProgramError("TypeError", "get takes a key and a default")
        entry = holder.entries.get(make_dictionary_key(given[0]))
        value = entry[1] if entry else given[1] if len(given) == 2 else make_literal(None)
        # Whether there is such a key depends on all of them.
        keys = join_labels(key.full for key, _ in holder.entries.values())
        return machine.from_container(machine.join(value, given[0].full | keys | holder.label), holder)
    if given or named:
        raise ProgramError("TypeError", f"{name} takes no arguments")
    items: dict[str, list[Value]] = {
        "items": [Series(holder.label, "tuple", entry) for entry in entries],
        "keys": [key for key, _ in entries],
        "values": [value for _, value in entries],
    }
    return machine.spending.count_value(Series(holder.label, "list", tuple(items[name])))


def _call_object_method(machine: Machine, holder: Instance, name: str, label: FlowLabel) -> Value:
    if name == "model_dump_json":
        return compute_plain(machine, lambda: to_json(to_native(holder)).decode(), label)
    entries: dict[Hashable, tuple[Value, Value]] = {
        field: (Scalar(holder.label, field), value) for field, value in holder.fields.items()
    }
    return machine.spending.count_value(Dictionary(holder.label, entries))


def _call_class_method(
    machine: Machine, holder: Value, name: str, arguments: list[Any], label: FlowLabel
) -> Value:
    """Call a method of a date or time class itself, e.g. `datetime.strptime` (all of them: `_OF_CLASSES`)."""
    class_ = getattr(holder, "of", None)
    assert isinstance(class_, type)
    if name == "strptime":
        _check_dates(arguments[1:])
    # Every text that these methods take is a date, a time or a format of one, so a long text is none.
    if any(isinstance(argument, str) and len(argument) > 200 for argument in arguments):
        raise ProgramError("ValueError", "too long for a date", label)
    return compute_plain(machine, lambda: _OF_CLASSES[class_, name](*arguments), label)


def _check_dates(arguments: Sequence[Any]) -> None:
    for argument in arguments:
        if isinstance(argument, str):
            check_date_format(argument)


def _check_text_result(
    machine: Machine, text: str, name: str, given: list[Any], named: Mapping[str, Any], label: FlowLabel
) -> None:
    """Look how long the result will be, before it is made."""
    try:
        machine.spending.check_text_length(_compute_result_length(text, name, given, named))
        if name in ("split", "rsplit", "splitlines"):
            machine.spending.count_steps(len(text) // 2)
    except PYTHON_ERRORS:
        raise ProgramError("TypeError", f"{name} does not take these arguments", label) from None


def _compute_result_length(text: str, name: str, given: list[Any], named: Mapping[str, Any]) -> int:
    if name in ("center", "ljust", "rjust", "zfill"):
        return max(len(text), int(given[0]))
    if name == "expandtabs":
        width = int(given[0] if given else named.get("tabsize", 8))
        return len(text) + text.count("\t") * max(0, width)
    if name == "replace":
        old, new = given[:2]
        places = text.count(old)
        return len(text) + places * max(0, len(new) - len(old))
    if name == "join":
        pieces = list(given[0])
        if not all(isinstance(piece, str) for piece in pieces):
            raise TypeError(write_type_name(make_literal(None)))
        return sum(map(len, pieces)) + len(text) * max(0, len(pieces) - 1)
    return len(text)


_DATE, _TIME = ("year", "month", "day"), ("hour", "minute", "second", "microsecond", "tzinfo")
_ATTRIBUTES: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Enum, ("value", "name")),
    (datetime.datetime, (*_DATE, *_TIME)),
    (datetime.date, _DATE),
    (datetime.time, _TIME),
    (datetime.timedelta, ("days", "seconds", "microseconds")),
)
_GETTERS = {name: attrgetter(name) for _, names in _ATTRIBUTES for name in names}


def get_attribute(machine: Machine, holder: Value, name: str) -> Value:
    """Get the value of an attribute: a field, an entry of the tables above, or a method.

    Raises:
        ProgramError: If the tables do not have it. Python's own attributes are never looked at.
    """
    if isinstance(holder, Instance) and name in holder.fields:
        return machine.join(holder.fields[name], holder.label)
    if isinstance(holder, ClassValue) and isinstance(holder.of, EnumMeta) and name in holder.of.__members__:
        return Scalar(holder.label, holder.of.__members__[name])
    if isinstance(holder, Scalar) and name in list_attributes(holder):
        return to_value(_GETTERS[name](holder.raw), holder.label)
    if name in list_methods(holder):
        return MethodValue(holder.label, name, holder)
    text = f"'{write_type_name(holder)}' object has no attribute '{name}'"
    raise ProgramError("AttributeError", text, holder.full)


def list_attributes(holder: Value) -> list[str]:
    """List the fields of an object, or the attributes of the table."""
    if isinstance(holder, Instance):
        return list(holder.fields)
    raw = holder.raw if isinstance(holder, Scalar) else None
    return [name for kind, names in _ATTRIBUTES if isinstance(raw, kind) for name in names]


def get_item(machine: Machine, holder: Value, index: Value) -> Value:
    """Get what stands at an index or key. It depends on the index as well."""
    if isinstance(holder, Dictionary):
        key = make_dictionary_key(index)
        if key not in holder.entries:
            # The key alone: what the dictionary holds is not for an error text.
            key_text = repr(index.raw) if isinstance(index, Scalar) else write_type_name(index)
            raise ProgramError("KeyError", key_text, holder.label | index.full)
        stored, value = holder.entries[key]
        return machine.from_container(machine.join(value, stored.full | index.full), holder)
    position = _resolve_index(holder, index)
    if isinstance(holder, Series):
        return machine.from_container(machine.join(holder.items[position], index.full), holder)
    assert isinstance(holder, Scalar)
    return Scalar(holder.full | index.full, holder.raw[position])


def replace_item(machine: Machine, holder: Value, index: Value, value: Value) -> Value:
    """Copy a list or dict with something else at an index or key."""
    if isinstance(holder, Dictionary):
        entries = {**holder.entries, make_dictionary_key(index): (index, value)}
        return machine.spending.count_value(Dictionary(holder.label | index.full, entries))
    if not isinstance(holder, Series) or holder.kind != "list":
        text = f"'{write_type_name(holder)}' object does not support item assignment"
        raise ProgramError("TypeError", text, holder.full)
    position = _resolve_index(holder, index)
    items = [*holder.items[:position], value, *holder.items[position + 1 :]]
    # Which of the items was replaced depends on the index, so each of them does.
    changed = tuple(machine.join(item, index.full) for item in items)
    return machine.spending.count_value(Series(holder.label | index.full, "list", changed))


def replace_attribute(machine: Machine, holder: Value, name: str, value: Value) -> Value:
    """Copy an object with another value in a field."""
    if not isinstance(holder, Instance) or name not in holder.fields:
        text = f"'{write_type_name(holder)}' object has no field '{name}'"
        raise ProgramError("AttributeError", text, holder.full)
    return machine.spending.count_value(Instance(holder.label, holder.of, {**holder.fields, name: value}))


def _resolve_index(holder: Value, index: Value) -> int:
    """Give the index, counted from the start."""
    match holder:
        case Series(kind="list" | "tuple", items=parts) | Scalar(raw=str() as parts):
            length = len(parts)
        case _:
            text = f"'{write_type_name(holder)}' object is not subscriptable"
            raise ProgramError("TypeError", text, holder.full)
    raw = index.raw if isinstance(index, Scalar) else None
    if not isinstance(raw, int):
        text = f"{write_type_name(holder)} indices must be integers, not {write_type_name(index)}"
        raise ProgramError("TypeError", text, holder.full | index.full)
    if not -length <= raw < length:
        text = f"{write_type_name(holder)} index out of range"
        raise ProgramError("IndexError", text, holder.label | index.full)
    return raw % length
