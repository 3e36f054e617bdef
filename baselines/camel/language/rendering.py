"""Labelled values as text: Python's `str` and `repr`, written for the values of the language."""

from __future__ import annotations

from enum import Enum

from baselines.camel.language.machine import ClassValue, ErrorValue, FunctionValue, MethodValue, ToolValue
from baselines.flow.values import Dictionary, Instance, Scalar, Series, Value

CALLABLE_NAMES = {FunctionValue: "function", ToolValue: "function", MethodValue: "method"}


def to_str(value: Value) -> str:
    """What `str` makes of it."""
    match value:
        case Scalar(raw=raw):
            return _enum_repr(raw) if isinstance(raw, Enum) else str(raw)
        case Instance(fields=fields):
            return " ".join(f"{name}={to_repr(held)}" for name, held in fields.items())
        case ErrorValue(text=text):
            return "" if text is None else to_str(text)
    return to_repr(value)


def to_repr(value: Value) -> str:
    """What `repr` makes of it."""
    match value:
        case Scalar(raw=raw):
            return repr(raw)
        case Series(kind=kind, items=items):
            return _series_repr(kind, [to_repr(item) for item in items])
        case Dictionary(entries=entries):
            return "{" + ", ".join(f"{to_repr(key)}: {to_repr(held)}" for key, held in entries.values()) + "}"
        case Instance(of=of, fields=fields):
            inside = ", ".join(f"{name}={to_repr(held)}" for name, held in fields.items())
            return f"{of.__name__}({inside})"
        case ClassValue(name=name):
            return f"<class '{name}'>"
        case ErrorValue(name=name, text=text):
            return f"{name}({'' if text is None else to_repr(text)})"
    return f"<{CALLABLE_NAMES.get(type(value), 'object')} {getattr(value, 'name', '')}>"


def type_name(value: Value) -> str:
    """The name of its type."""
    match value:
        case Scalar(raw=raw):
            return type(raw).__name__
        case Series(kind=kind):
            return kind
        case Dictionary():
            return "dict"
        case Instance(of=of):
            return of.__name__
        case ClassValue():
            return "type"
        case ErrorValue(name=name):
            return name
    return "function"


def _enum_repr(raw: Enum) -> str:
    return str(raw.value) if isinstance(raw, str) else str(raw)


def _series_repr(kind: str, items: list[str]) -> str:
    inside = ", ".join(items)
    if kind == "list":
        return f"[{inside}]"
    if kind == "tuple":
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    return f"{{{inside}}}" if items else "set()"
