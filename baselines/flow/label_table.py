"""`LabelTable`: the labels that the results of a suite's tools start with, read from data.

The first functions find groups of identities in an environment: channel members, participants, sharers.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, reduce
from importlib import resources
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict

from baselines.flow.labelled_values import (
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Series,
    ToolOrigin,
    TrustSource,
    Value,
    label_from_tool,
)

GroupLookup = Callable[[Any, str], Iterable[str]]
"""From an environment and a name to the people."""


def channel_members(environment: Any, channel: str) -> list[str]:
    """Who is in a channel now."""
    memberships: Mapping[str, Iterable[str]] = environment.slack.user_channels
    return [user for user, channels in memberships.items() if channel in channels]


def event_participants(environment: Any, event: str) -> list[str]:
    """Who takes part in a calendar event now; nobody in one that does not exist."""
    events = environment.calendar.events
    return [str(person) for person in events[event].participants] if event in events else []


def file_sharers(environment: Any, file: str) -> list[str]:
    """Who can open a file now; nobody one that does not exist."""
    files = environment.cloud_drive.files
    return [str(person) for person in (files[file].owner, *files[file].shared_with)] if file in files else []


def read_identities(held: Any) -> list[str]:
    """The identities in an argument or field: a text, a list of texts, the keys of a mapping, or nothing."""
    if held is None:
        return []
    return [str(one) for one in held] if isinstance(held, list | tuple | set | Mapping) else [str(held)]


_Shape = TypeVar("_Shape", bound=BaseModel)
WriterKind = Literal["nobody", "user", "trusted"]
PLAIN_TYPES = (bool, int, float, str, datetime.date, datetime.time, datetime.timedelta, Enum, type(None))
"""What stays as it is; anything else that is no container becomes its text."""


class SuiteData(BaseModel):
    """A part of a file that a suite has; read strictly."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ResultRule(SuiteData):
    """How one kind of result is labelled."""

    written_by: WriterKind | tuple[str, ...] = "nobody"
    """Fields that name the writers (`shared_with.rw`: those with write access), or `user`, `trusted`;
    `nobody`: no writer is known, so it is anybody's."""
    readers: Literal["everyone", "nobody"] | tuple[str, ...] = "everyone"
    """Fields that name the readers."""


class SuiteLabels(SuiteData):
    """The file of one suite."""

    own: tuple[str, ...] = ()
    """Paths into the environment at which the user's own identities stand."""
    own_words: tuple[str, ...] = ()
    """What stands for the user in results, as `me`."""
    classes: Mapping[str, ResultRule] = {}
    """Class of an object -> its rule."""
    tools: Mapping[str, ResultRule] = {}
    """Tool -> the rule of what it returns, where that is no object of `classes`."""
    published: Mapping[str, ResultRule] = {}
    """Tool -> the rule of the reference implementation, where it is a slip that is mended in `tools`."""


@lru_cache(maxsize=64)
def load_suite_labels(suite: str) -> SuiteLabels | None:
    """The labels of a suite, or None if there is no file of its name."""
    return load_packaged_file(f"{suite}.yaml", SuiteLabels, "baselines.flow", "tables")


def load_packaged_file(file: str, shape: type[_Shape], package: str, folder: str) -> _Shape | None:
    """A YAML file of the package, read into a model; None if there is none."""
    place = resources.files(package) / folder / file
    if "/" in file or not place.is_file():
        return None
    return shape.model_validate(yaml.safe_load(place.read_text(encoding="utf-8")))


@dataclass(frozen=True)
class LabelTable:
    """The labels of one case: a suite's rules, and who its user is."""

    rules: SuiteLabels = field(default_factory=SuiteLabels)
    own: frozenset[str] = frozenset()
    """The user's identities in this environment."""
    as_published: bool = False

    def label_result(self, tool: str, result: Any) -> Value:
        """What a tool returned, with its labels.

        A list's items are labelled one by one. Parts of an object or dict have the label of the whole.
        """
        if isinstance(result, list | tuple):
            items = tuple(self.label_result(tool, item) for item in result)
            return Series(label_from_tool(tool), "list", items)
        return to_value(result, self.result_label(tool, result))

    def result_label(self, tool: str, result: Any) -> FlowLabel:
        """The label of a result that is no list."""
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
        names = _identities_at_paths(result, rule.written_by)
        return [TrustSource.USER if name in self.own else name for name in names]

    def _find_readers(self, rule: ResultRule, result: Any) -> Iterable[str] | None:
        if isinstance(rule.readers, str):
            return None if rule.readers == "everyone" else ()
        return _identities_at_paths(result, rule.readers)


def build_label_table(suite: str, environment: object, *, as_published: bool = False) -> LabelTable:
    """The table of one case; for a suite without a file one in which everything is untrusted."""
    rules = load_suite_labels(suite)
    if rules is None:
        return LabelTable()
    return LabelTable(rules, find_own_identities(rules, environment), as_published)


def find_own_identities(rules: SuiteLabels, environment: object) -> frozenset[str]:
    """Who the user is in this environment."""
    names = [
        reduce(lambda held, step: getattr(held, step, None), p.split("."), environment) for p in rules.own
    ]
    return frozenset([*(str(name) for name in names if name is not None), *rules.own_words])


def to_value(raw: Any, label: FlowLabel) -> Value:
    """Native data as a labelled value, every part with the one label.

    Objects of pydantic classes become instances, enumerations stay members, and what is none of the plain
    types becomes its text: nothing of Python's own machinery is left to reach for.
    """
    if isinstance(raw, BaseModel):
        fields = {name: to_value(getattr(raw, name), label) for name in type(raw).model_fields}
        return Instance(label, type(raw), fields)
    if isinstance(raw, Mapping):
        pairs = {_to_plain(key): (to_value(key, label), to_value(held, label)) for key, held in raw.items()}
        return Dictionary(label, pairs)
    if isinstance(raw, list | tuple):
        kind: Literal["list", "tuple"] = "tuple" if isinstance(raw, tuple) else "list"
        return Series(label, kind, tuple(to_value(item, label) for item in raw))
    if isinstance(raw, set | frozenset):
        return Series(label, "set", tuple(to_value(item, label) for item in sorted(raw, key=repr)))
    return Scalar(label, _to_plain(raw))


def _to_plain(raw: Any) -> Any:
    return raw if isinstance(raw, PLAIN_TYPES) else str(raw)


def _identities_at_paths(result: Any, paths: Iterable[str]) -> list[str]:
    """The identities in some fields: texts, the items of lists, and the keys of mappings."""
    names: list[str] = []
    for path in paths:
        name, _, access = path.partition(".")
        held = getattr(result, name, None)
        if isinstance(held, Mapping):
            held = [key for key, right in held.items() if not access or str(right) == access]
        names += read_identities(held)
    return names
