"""Labelled values as text: Python's `str` and `repr`, written for the values of the language."""

from __future__ import annotations

from enum import Enum

from baselines.camel.language.machine import ClassValue, ErrorValue, Function, Method, Tool
from baselines.flow.values import Dictionary, Instance, Scalar, Series, Value

NOT_CALLED = {Function: "function", Tool: "function", Method: "method"}


def shown(value: Value) -> str:
    """What `str` makes of it."""
    match value:
        case Scalar(raw=raw):
            return _enum(raw) if isinstance(raw, Enum) else str(raw)
        case Instance(fields=fields):
            return " ".join(f"{name}={written(held)}" for name, held in fields.items())
        case ErrorValue(text=text):
            return "" if text is None else shown(text)
    return written(value)


def written(value: Value) -> str:
    """What `repr` makes of it."""
    match value:
        case Scalar(raw=raw):
            return repr(raw)
        case Series(kind=kind, items=items):
            return _series(kind, [written(item) for item in items])
        case Dictionary(entries=entries):
            return "{" + ", ".join(f"{written(key)}: {written(held)}" for key, held in entries.values()) + "}"
        case Instance(of=of, fields=fields):
            inside = ", ".join(f"{name}={written(held)}" for name, held in fields.items())
            return f"{of.__name__}({inside})"
        case ClassValue(name=name):
            return f"<class '{name}'>"
        case ErrorValue(name=name, text=text):
            return f"{name}({'' if text is None else written(text)})"
    return f"<{NOT_CALLED.get(type(value), 'object')} {getattr(value, 'name', '')}>"


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


def _enum(raw: Enum) -> str:
    return str(raw.value) if isinstance(raw, str) else str(raw)


def _series(kind: str, items: list[str]) -> str:
    inside = ", ".join(items)
    if kind == "list":
        return f"[{inside}]"
    if kind == "tuple":
        return f"({inside},)" if len(items) == 1 else f"({inside})"
    return f"{{{inside}}}" if items else "set()"
