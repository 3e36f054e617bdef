"""`FlowLabel` and `Value`: where data came from, who may read it, and data whose every part has a label.

Labels form a lattice whose join is `|`. Values never change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import reduce
from typing import Any, Literal


class TrustSource(Enum):
    """Where a value can come from and be trusted."""

    USER = "user"
    """The request, and literals of a program written from it."""
    TRUSTED_TOOL = "trusted tool"
    """A tool's fact that nobody but its owner writes."""


@dataclass(frozen=True)
class ToolOrigin:
    """A tool's result, or a part of it."""

    tool: str
    inner: frozenset[TrustSource | str] = frozenset()
    """Who wrote it, as far as is known: identities such as an address, or sources. Empty: anybody."""


LabelOrigin = TrustSource | ToolOrigin


@dataclass(frozen=True)
class FlowLabel:
    """A point of the product lattice of integrity and confidentiality; `|` is its join."""

    sources: frozenset[LabelOrigin]
    """Everything that had a part in the value."""
    readers: frozenset[str] | None = None
    """Who may read it; None: everyone."""

    @property
    def is_trusted(self) -> bool:
        """Whether nobody but the user, the engine and trusted tools had a part in it."""
        return all(_is_trusted_origin(origin) for origin in self.sources)

    @property
    def is_public(self) -> bool:
        """Whether everyone may read it."""
        return self.readers is None

    def is_readable_by(self, identities: Iterable[str]) -> bool:
        """Whether all of these may read it."""
        return self.readers is None or self.readers.issuperset(identities)

    def flows_to(self, other: FlowLabel) -> bool:
        """Whether it is below or equal: as trusted, and readable by all who may read `other`."""
        if other.is_trusted and not self.is_trusted:
            return False
        return self.readers is None or (other.readers is not None and other.readers <= self.readers)

    def __or__(self, other: FlowLabel) -> FlowLabel:
        if other is self or (other.readers is None and other.sources <= self.sources):
            return self
        return FlowLabel(self.sources | other.sources, _common_readers(self.readers, other.readers))


def join_labels(labels: Iterable[FlowLabel]) -> FlowLabel:
    """The join of any number of labels; of none: from nowhere, and for everyone."""
    return reduce(FlowLabel.__or__, labels, NOWHERE)


def label_from_tool(
    tool: str, inner: Iterable[TrustSource | str] = (), readers: Iterable[str] | None = None
) -> FlowLabel:
    """The label of something a tool returned."""
    allowed = None if readers is None else frozenset(readers)
    return FlowLabel(frozenset((ToolOrigin(tool, frozenset(inner)),)), allowed)


def _is_trusted_origin(origin: LabelOrigin) -> bool:
    if isinstance(origin, TrustSource):
        return True
    return bool(origin.inner) and all(isinstance(one, TrustSource) for one in origin.inner)


def _common_readers(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


NOWHERE = FlowLabel(frozenset())
"""The least label: neutral in joins."""
FROM_USER = FlowLabel(frozenset((TrustSource.USER,)))
"""The label of literals."""


SeriesKind = Literal["list", "tuple", "set"]


@dataclass(frozen=True, eq=False)
class Value:
    """Anything a program can hold."""

    label: FlowLabel
    """Its own label: that it is there, and what it is as a whole."""
    # Known from the start, so that neither a value that holds itself nor one that is small in memory and huge
    # when written out can come about unseen.
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
