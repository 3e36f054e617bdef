"""`FlowLabel` and `Value`: where data came from, who may read it, and data whose every part has a label.

Labels form a lattice whose join is `|`. Values never change. `LabelTable` has the labels that the results of a
suite's tools start with, read from data.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, reduce
from importlib import resources
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict


class TrustSource(Enum):
    """The trusted origins of a value."""

    USER = "user"
    """The request, and literals of a program written from it."""
    TRUSTED_TOOL = "trusted tool"
    """A tool's fact that only its owner can write."""


@dataclass(frozen=True)
class ToolOrigin:
    """A tool's result, or a part of it."""

    tool: str
    inner: frozenset[TrustSource | str] = frozenset()
    """Known writers: identities such as an address, or sources. Empty: anybody."""


LabelOrigin = TrustSource | ToolOrigin


@dataclass(frozen=True)
class FlowLabel:
    """A point of the product lattice of integrity and confidentiality; `|` is its join."""

    sources: frozenset[LabelOrigin]
    """Origins of everything that influenced the value."""
    readers: frozenset[str] | None = None
    """Identities that may read it; None: everyone."""

    @property
    def is_trusted(self) -> bool:
        """True if only the user, the engine and trusted tools influenced it."""
        return all(
            isinstance(origin, TrustSource)
            or (bool(origin.inner) and all(isinstance(source, TrustSource) for source in origin.inner))
            for origin in self.sources
        )

    @property
    def is_public(self) -> bool:
        """True if everyone may read it."""
        return self.readers is None

    def is_readable_by(self, identities: Iterable[str]) -> bool:
        """True if all of these may read it."""
        return self.readers is None or self.readers.issuperset(identities)

    def flows_to(self, other: FlowLabel) -> bool:
        """True if it is at or below `other`: at least as trusted, and readable by all who may read `other`."""
        if other.is_trusted and not self.is_trusted:
            return False
        return self.readers is None or (other.readers is not None and other.readers <= self.readers)

    def __or__(self, other: FlowLabel) -> FlowLabel:
        if other is self or (other.readers is None and other.sources <= self.sources):
            return self
        known = [readers for readers in (self.readers, other.readers) if readers is not None]
        common = frozenset.intersection(*known) if known else None
        return FlowLabel(self.sources | other.sources, common)


def join_labels(labels: Iterable[FlowLabel]) -> FlowLabel:
    """Join any number of labels; without any, return `NOWHERE`."""
    return reduce(FlowLabel.__or__, labels, NOWHERE)


def label_from_tool(
    tool: str, inner: Iterable[TrustSource | str] = (), readers: Iterable[str] | None = None
) -> FlowLabel:
    """Build the label of a value that a tool returned."""
    allowed = None if readers is None else frozenset(readers)
    return FlowLabel(frozenset((ToolOrigin(tool, frozenset(inner)),)), allowed)


NOWHERE = FlowLabel(frozenset())
"""The least label: neutral in joins."""
FROM_USER = FlowLabel(frozenset((TrustSource.USER,)))
"""The label of literals."""


SeriesKind = Literal["list", "tuple", "set"]


@dataclass(frozen=True, eq=False)
class Value:
    """Anything a program can hold."""

    label: FlowLabel
    """Its own label: of its existence and of the value as a whole."""
    # Computed at construction, so that neither a cyclic value nor one that is small in memory and huge when
    # written out can be built unnoticed.
    full: FlowLabel = field(init=False, repr=False)
    """Its own label joined with all its parts' labels."""
    size: int = field(init=False, repr=False)
    """Number of parts and characters, each counted as often as it would be written out."""
    count: int = field(init=False, repr=False)
    """Number of parts, itself included."""
    depth: int = field(init=False, repr=False)
    """Number of levels, its own included."""

    def list_parts(self) -> tuple[Value, ...]:
        """Return the values directly inside."""
        return ()

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """Return the same with changed parts and another label of its own."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        parts = self.list_parts()
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
        """Return itself with another label."""
        return Scalar(label, self.raw)


@dataclass(frozen=True, eq=False)
class Series(Value):
    """A list, tuple or set."""

    kind: SeriesKind = "list"
    items: tuple[Value, ...] = ()

    def list_parts(self) -> tuple[Value, ...]:
        """Return its items."""
        return self.items

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """Return the series of the changed items."""
        return Series(label, self.kind, tuple(change(item) for item in self.items))


@dataclass(frozen=True, eq=False)
class Dictionary(Value):
    """A dict: native key -> (key, value)."""

    entries: Mapping[Hashable, tuple[Value, Value]] = field(default_factory=dict)

    def list_parts(self) -> tuple[Value, ...]:
        """Return its keys and values."""
        return tuple(part for entry in self.entries.values() for part in entry)

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """Return the dictionary of the changed keys and values."""
        changed = {raw: (change(key), change(value)) for raw, (key, value) in self.entries.items()}
        return Dictionary(label, changed)


@dataclass(frozen=True, eq=False)
class Instance(Value):
    """An object of a pydantic class, field by field. The native object is never kept."""

    of: type = object
    fields: Mapping[str, Value] = field(default_factory=dict)

    def list_parts(self) -> tuple[Value, ...]:
        """Return its fields' values."""
        return tuple(self.fields.values())

    def with_parts(self, change: Callable[[Value], Value], label: FlowLabel) -> Value:
        """Return the object of the changed fields."""
        return Instance(label, self.of, {name: change(value) for name, value in self.fields.items()})


def make_literal(raw: Any) -> Scalar:
    """Build the value of a literal in a program: from the user, readable by everyone."""
    return Scalar(FROM_USER, raw)


def join_deeply(value: Value, label: FlowLabel) -> Value:
    """Return the value with a label joined to it and to everything inside."""
    if value.label | label is value.label and value.full is value.label:
        return value
    return value.with_parts(lambda part: join_deeply(part, label), value.label | label)


def to_native(value: Value) -> Any:
    """Convert a value to plain data: fresh lists, tuples, sets and dicts; objects as dicts."""
    match value:
        case Scalar(raw=raw):
            return raw
        case Series(kind=kind, items=items):
            inside = [to_native(item) for item in items]
            return inside if kind == "list" else tuple(inside) if kind == "tuple" else set(inside)
        case Dictionary(entries=entries):
            return {raw: to_native(element) for raw, (_, element) in entries.items()}
        case Instance(fields=fields):
            return {name: to_native(element) for name, element in fields.items()}
    return str(value)


GroupLookup = Callable[[Any, str], Iterable[str]]
"""An environment and a name -> the identities of the people."""


def list_channel_members(environment: Any, channel: str) -> list[str]:
    """List the current members of a channel."""
    memberships: Mapping[str, Iterable[str]] = environment.slack.user_channels
    return [user for user, channels in memberships.items() if channel in channels]


def list_event_participants(environment: Any, event: str) -> list[str]:
    """List the current participants of a calendar event; nobody if it does not exist."""
    events = environment.calendar.events
    return [str(person) for person in events[event].participants] if event in events else []


def list_file_sharers(environment: Any, file: str) -> list[str]:
    """List who can open a file now; nobody if it does not exist."""
    files = environment.cloud_drive.files
    return [str(person) for person in (files[file].owner, *files[file].shared_with)] if file in files else []


def read_identities(value: Any) -> list[str]:
    """Read the identities in an argument or field: a string, a list, the keys of a mapping, or None."""
    if value is None:
        return []
    return [str(name) for name in value] if isinstance(value, list | tuple | set | Mapping) else [str(value)]


_Shape = TypeVar("_Shape", bound=BaseModel)
WriterKind = Literal["nobody", "user", "trusted"]
PLAIN_TYPES = (bool, int, float, str, datetime.date, datetime.time, datetime.timedelta, Enum, type(None))
"""Types kept as they are; any other value that is no container becomes a string."""


class SuiteData(BaseModel):
    """A part of a suite's YAML file; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ResultRule(SuiteData):
    """Labels of one kind of result."""

    written_by: WriterKind | tuple[str, ...] = "nobody"
    """Fields that name the writers (`shared_with.rw`: those with write access), or `user`, `trusted`;
    `nobody`: no writer is known, so it is anybody's."""
    readers: Literal["everyone", "nobody"] | tuple[str, ...] = "everyone"
    """Fields that name the readers."""


class SuiteLabels(SuiteData):
    """The file of one suite."""

    own: tuple[str, ...] = ()
    """Paths of the user's own identities in the environment."""
    own_words: tuple[str, ...] = ()
    """Words that denote the user in results, e.g. `me`."""
    classes: Mapping[str, ResultRule] = {}
    """Class of an object -> its rule."""
    tools: Mapping[str, ResultRule] = {}
    """Tool -> the rule of its result, if that is no object of `classes`."""
    published: Mapping[str, ResultRule] = {}
    """Tool -> the reference implementation's rule, if `tools` corrects a slip in it."""


@lru_cache(maxsize=64)
def load_suite_labels(suite: str) -> SuiteLabels | None:
    """Load the labels of a suite; None if it has no file."""
    return load_packaged_file(f"{suite}.yaml", SuiteLabels, "baselines.flow", "tables")


def load_packaged_file(file: str, shape: type[_Shape], package: str, folder: str) -> _Shape | None:
    """Read a YAML file of the package into a model; None if there is no such file."""
    path = resources.files(package) / folder / file
    if "/" in file or not path.is_file():
        return None
    return shape.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class LabelTable:
    """The labels of one case: a suite's rules and its user's identities."""

    rules: SuiteLabels = field(default_factory=SuiteLabels)
    own: frozenset[str] = frozenset()
    """The user's identities in this environment."""
    as_published: bool = False

    def label_result(self, tool: str, result: Any) -> Value:
        """Label a tool's result.

        A list's items are labelled one by one. Parts of an object or dict have the label of the whole.
        """
        if isinstance(result, list | tuple):
            items = tuple(self.label_result(tool, item) for item in result)
            return Series(label_from_tool(tool), "list", items)
        return to_value(result, self.find_result_label(tool, result))

    def find_result_label(self, tool: str, result: Any) -> FlowLabel:
        """Return the label of a result that is no list."""
        if result is None:
            return FlowLabel(frozenset((ToolOrigin(tool, frozenset((TrustSource.TRUSTED_TOOL,))),)))
        rule = self.rules.classes.get(type(result).__name__) if isinstance(result, BaseModel) else None
        rule = rule or (self.as_published and self.rules.published.get(tool)) or self.rules.tools.get(tool)
        if rule is None:
            return label_from_tool(tool)
        return label_from_tool(tool, self._find_writers(rule, result), self._find_readers(rule, result))

    def _find_writers(self, rule: ResultRule, result: Any) -> Iterable[TrustSource | str]:
        known = {"nobody": (), "user": (TrustSource.USER,), "trusted": (TrustSource.TRUSTED_TOOL,)}
        if isinstance(rule.written_by, str):
            return known[rule.written_by]
        names = _find_identities_at_paths(result, rule.written_by)
        return [TrustSource.USER if name in self.own else name for name in names]

    def _find_readers(self, rule: ResultRule, result: Any) -> Iterable[str] | None:
        if isinstance(rule.readers, str):
            return None if rule.readers == "everyone" else ()
        return _find_identities_at_paths(result, rule.readers)


def build_label_table(suite: str, environment: object, *, as_published: bool = False) -> LabelTable:
    """Build the table of one case; for a suite without a file everything is untrusted."""
    rules = load_suite_labels(suite)
    if rules is None:
        return LabelTable()
    names = [
        reduce(lambda node, step: getattr(node, step, None), p.split("."), environment) for p in rules.own
    ]
    own = frozenset([*(str(name) for name in names if name is not None), *rules.own_words])
    return LabelTable(rules, own, as_published)


def to_value(raw: Any, label: FlowLabel) -> Value:
    """Convert native data to a labelled value whose parts all have one label.

    Objects of pydantic classes become instances, enumerations stay members, and what is none of the plain
    types becomes its text: nothing of Python's own machinery is left to reach for.
    """
    if isinstance(raw, BaseModel):
        fields = {name: to_value(getattr(raw, name), label) for name in type(raw).model_fields}
        return Instance(label, type(raw), fields)
    if isinstance(raw, Mapping):
        pairs = {_to_plain(key): (to_value(key, label), to_value(part, label)) for key, part in raw.items()}
        return Dictionary(label, pairs)
    if isinstance(raw, list | tuple):
        kind: Literal["list", "tuple"] = "tuple" if isinstance(raw, tuple) else "list"
        return Series(label, kind, tuple(to_value(item, label) for item in raw))
    if isinstance(raw, set | frozenset):
        return Series(label, "set", tuple(to_value(item, label) for item in sorted(raw, key=repr)))
    return Scalar(label, _to_plain(raw))


def _to_plain(raw: Any) -> Any:
    return raw if isinstance(raw, PLAIN_TYPES) else str(raw)


def _find_identities_at_paths(result: Any, paths: Iterable[str]) -> list[str]:
    """Find the identities in some fields: strings, the items of lists, and the keys of mappings."""
    names: list[str] = []
    for path in paths:
        name, _, access = path.partition(".")
        readers = getattr(result, name, None)
        if isinstance(readers, Mapping):
            readers = [key for key, right in readers.items() if not access or str(right) == access]
        names += read_identities(readers)
    return names
