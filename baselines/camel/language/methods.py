"""Methods, by the type of their receiver: pure ones alone, run on plain data."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from typing import Any

from pydantic_core import to_json

from baselines.camel.language.failure import ProgramError
from baselines.camel.language.formatting import check_date_format, format_text
from baselines.camel.language.machine import Machine
from baselines.camel.language.operators import PYTHON_ERRORS, dictionary_key, compute_plain
from baselines.camel.language.rendering import type_name
from baselines.flow.label import FlowLabel, join_labels
from baselines.flow.values import Dictionary, Instance, Scalar, Series, Value, literal_value, to_native

MethodKeywords = Mapping[str, Value]
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
_DICTIONARY_METHODS = ("get", "items", "keys", "values")
_OBJECT_METHODS = ("model_dump", "model_dump_json", "dict")


def has_method(holder: Value, name: str) -> bool:
    """Whether the tables have such a method for such a value."""
    return name in list_methods(holder)


def list_methods(holder: Value) -> list[str]:
    """Names of the methods of a value."""
    match holder:
        case Dictionary():
            return list(_DICTIONARY_METHODS)
        case Series(kind=kind) if kind != "set":
            return ["index", "count"]
        case Instance():
            return list(_OBJECT_METHODS)
        case Scalar(raw=raw):
            kind_ = _receiver_kind(raw)
            return [*(["format"] if kind_ is str else []), *(name for k, name in _NATIVE_METHODS if k is kind_)]
    return [name for k, name in _OF_CLASSES if k is getattr(holder, "of", None)]


def call_method(machine: Machine, holder: Value, name: str, given: Sequence[Value], named: MethodKeywords) -> Value:
    """The result of a method.

    Raises:
        ProgramError: If it fails, or would make too much.
    """
    label = join_labels([holder.full, *(value.full for value in (*given, *named.values()))])
    if isinstance(holder, Dictionary):
        return _dictionary_method(machine, holder, name, given, named)
    if isinstance(holder, Instance):
        return _object_method(machine, holder, name, label)
    arguments = [to_native(value) for value in given]
    keywords = {key: to_native(value) for key, value in named.items()}
    if isinstance(holder, Series):
        method = list.index if name == "index" else list.count
        held = [to_native(item) for item in holder.items]
        return compute_plain(machine, lambda: method(held, *arguments, **keywords), label, f"{name} has failed")
    if not isinstance(holder, Scalar):
        return _class_method(machine, holder, name, arguments, label)
    kind = _receiver_kind(holder.raw)
    if kind is str:
        text = str(holder.raw.value) if isinstance(holder.raw, Enum) else str(holder.raw)
        if name == "format":
            limits = machine.spending.bounds.width, machine.spending.bounds.text
            return compute_plain(machine, lambda: format_text(text, given, named, label, limits), label)
        _check_text_result(machine, text, name, arguments, keywords, label)
        return compute_plain(machine, lambda: _NATIVE_METHODS[str, name](text, *arguments, **keywords), label)
    assert kind is not None
    if name == "strftime":
        _check_dates(arguments)
    return compute_plain(machine, lambda: _NATIVE_METHODS[kind, name](holder.raw, *arguments, **keywords), label)


def _receiver_kind(raw: Any) -> type | None:
    if isinstance(raw, bool):
        return None
    return next((kind for kind in _KINDS if isinstance(raw, kind)), None)


def _dictionary_method(
    machine: Machine, holder: Dictionary, name: str, given: Sequence[Value], named: MethodKeywords
) -> Value:
    entries = [
        (machine.from_container(key, holder), machine.from_container(machine.join(value, key.full), holder))
        for key, value in holder.entries.values()
    ]
    if name == "get":
        if named or not 1 <= len(given) <= 2:
            raise ProgramError("TypeError", "get takes a key and a default")
        found = holder.entries.get(dictionary_key(given[0]))
        value = found[1] if found else given[1] if len(given) == 2 else literal_value(None)
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


def _object_method(machine: Machine, holder: Instance, name: str, label: FlowLabel) -> Value:
    if name == "model_dump_json":
        return compute_plain(machine, lambda: to_json(to_native(holder)).decode(), label)
    entries: dict[Hashable, tuple[Value, Value]] = {
        field: (Scalar(holder.label, field), value) for field, value in holder.fields.items()
    }
    return machine.spending.count_value(Dictionary(holder.label, entries))


def _class_method(machine: Machine, holder: Value, name: str, arguments: list[Any], label: FlowLabel) -> Value:
    of = getattr(holder, "of", None)
    assert isinstance(of, type)
    if name == "strptime":
        _check_dates(arguments[1:])
    if any(isinstance(argument, str) and len(argument) > 200 for argument in arguments):
        raise ProgramError("ValueError", "too long for a date", label)
    return compute_plain(machine, lambda: _OF_CLASSES[of, name](*arguments), label)


def _check_dates(arguments: Sequence[Any]) -> None:
    for argument in arguments:
        if isinstance(argument, str):
            check_date_format(argument)


def _check_text_result(
    machine: Machine, text: str, name: str, given: list[Any], named: Mapping[str, Any], label: FlowLabel
) -> None:
    """Look how long the result will be, before it is made."""
    try:
        machine.spending.check_text_length(_result_length(text, name, given, named))
        if name in ("split", "rsplit", "splitlines"):
            machine.spending.count_steps(len(text) // 2)
    except PYTHON_ERRORS:
        raise ProgramError("TypeError", f"{name} does not take these arguments", label) from None


def _result_length(text: str, name: str, given: list[Any], named: Mapping[str, Any]) -> int:
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
            raise TypeError(type_name(literal_value(None)))
        return sum(map(len, pieces)) + len(text) * max(0, len(pieces) - 1)
    return len(text)
