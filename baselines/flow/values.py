"""Labelled values: plain data in which every part carries a label. They never change.

`full` is the label of a value with all its parts; it and `size` are known from the start, so that neither a
value that holds itself nor one that is small in memory and huge when written out can come about unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from baselines.flow.label import FROM_USER, FlowLabel, join_labels

SeriesKind = Literal["list", "tuple", "set"]


@dataclass(frozen=True, eq=False)
class Value:
    """Anything a program can hold."""

    label: FlowLabel
    """Its own label: that it is there, and what it is as a whole."""
    full: FlowLabel = field(init=False, repr=False)
    """Its own label joined with those of its parts."""
    size: int = field(init=False, repr=False)
    """Parts and characters, each counted as often as it would be written out."""
    count: int = field(init=False, repr=False)
    """Parts alone, itself included."""
    depth: int = field(init=False, repr=False)
    """Levels of parts, itself included."""

    def parts(self) -> tuple[Value, ...]:
        """The values directly inside."""
        return ()

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """The same with changed parts and another label of its own."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        parts = self.parts()
        # Parts mostly share one label object: join each once.
        labels = {id(part.full): part.full for part in parts}
        object.__setattr__(self, "full", join_labels((self.label, *labels.values())))
        object.__setattr__(self, "size", 1 + sum(part.size for part in parts))
        object.__setattr__(self, "count", 1 + sum(part.count for part in parts))
        object.__setattr__(self, "depth", 1 + max((part.depth for part in parts), default=0))


@dataclass(frozen=True, eq=False)
class Scalar(Value):
    """A text, number, truth value, date, member of an enumeration, or None."""

    raw: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "full", self.label)
        object.__setattr__(self, "size", 1 + (len(self.raw) if isinstance(self.raw, str) else 0))
        object.__setattr__(self, "count", 1)
        object.__setattr__(self, "depth", 1)

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """Itself with another label."""
        return Scalar(label, self.raw)


@dataclass(frozen=True, eq=False)
class Series(Value):
    """A list, tuple or set."""

    kind: SeriesKind = "list"
    items: tuple[Value, ...] = ()

    def parts(self) -> tuple[Value, ...]:
        """Its items."""
        return self.items

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """The series of the changed items."""
        return Series(label, self.kind, tuple(change(item) for item in self.items))


@dataclass(frozen=True, eq=False)
class Dictionary(Value):
    """A dict: native key -> (key, value)."""

    entries: Mapping[Hashable, tuple[Value, Value]] = field(default_factory=dict)

    def parts(self) -> tuple[Value, ...]:
        """Keys and values."""
        return tuple(part for entry in self.entries.values() for part in entry)

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """The dictionary of the changed keys and values."""
        changed = {raw: (change(key), change(value)) for raw, (key, value) in self.entries.items()}
        return Dictionary(label, changed)


@dataclass(frozen=True, eq=False)
class Instance(Value):
    """An object of a pydantic class, field by field. The native object is never kept."""

    of: type = object
    fields: Mapping[str, Value] = field(default_factory=dict)

    def parts(self) -> tuple[Value, ...]:
        """Its fields' values."""
        return tuple(self.fields.values())

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """The object of the changed fields."""
        return Instance(label, self.of, {name: change(value) for name, value in self.fields.items()})


def literal_value(raw: Any) -> Scalar:
    """A value that stands in a program: the user's, for everyone."""
    return Scalar(FROM_USER, raw)


def join_deeply(value: Value, label: FlowLabel) -> Value:
    """The value with a label joined to it and to everything inside."""
    if value.label | label is value.label and value.full is value.label:
        return value
    return value.with_parts(lambda part: join_deeply(part, label), value.label | label)


def join_outer(value: Value, label: FlowLabel) -> Value:
    """The value with a label joined to its own; its parts stay."""
    merged = value.label | label
    return value if merged is value.label else value.with_parts(lambda part: part, merged)


def to_native(value: Value) -> Any:
    """The plain data behind a value: fresh lists, tuples, sets and dicts; objects as dicts."""
    match value:
        case Scalar(raw=raw):
            return raw
        case Series(kind=kind, items=items):
            inside = [to_native(item) for item in items]
            return inside if kind == "list" else tuple(inside) if kind == "tuple" else set(inside)
        case Dictionary(entries=entries):
            return {raw: to_native(held) for raw, (_, held) in entries.items()}
        case Instance(fields=fields):
            return {name: to_native(held) for name, held in fields.items()}
    return str(value)
