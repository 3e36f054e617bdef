"""`HandleStore`: accepted values under names such as `$c3.body`, which the main agent passes on unread.

A handle is resolved once: what it stands for is never searched for handles again. It can take steps into
mappings and lists, and nothing else. `sum($c1.a, $c2.b)` adds numbers, `count($c1.files)` counts a list,
`largest($c1.files, size).id` picks a record by a field; what comes out depends on all values that went in.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from agentsys.defense.call_trace import UserRequest
from agentsys.defense.typed.value_origin import (
    ChosenBy,
    Distance,
    ValueKind,
    ValueOrigin,
    ValuePath,
    find_value_kind,
    iterate_leaves,
    map_leaves,
    write_canonical,
)

HANDLE = re.compile(r"\$c(\d{1,6})((?:\.\w{1,60}|\[\d{1,6}\])+)", re.ASCII)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]", re.ASCII)
_WRAPPING = " \t\r\n`'\"<>{}()"
"""What models write around a name."""
_BRACED = re.compile(r"\$\{(c\d[^{}]*)\}|\{\{?\s*(\$c\d[^{}]*?)\s*\}?\}")
"""Ways in which models write a name into a template: `${c1.x}`, `{{$c1.x}}`."""


FoundValue = tuple[Any, Mapping[ValuePath, ValueOrigin]]
"""A value, and what is known of each of its leaves."""


@dataclass(frozen=True)
class StoredValue:
    """What one call gave."""

    tool: str
    value: Mapping[str, Any]
    origins: Mapping[ValuePath, ValueOrigin]
    """ValueOrigin of each leaf."""


@dataclass(frozen=True)
class ResolvedLeaf:
    """One leaf of an argument, as it will run."""

    argument: str
    value: Any
    origins: tuple[ValueOrigin, ...] = ()
    """Of a handle that of its value; of a literal those of all equal values that were shown."""
    in_request: bool = False
    """Whether it stands in the user's request."""
    spliced: bool = False
    """Whether values were put into a longer text."""
    by_handle: bool = False

    @property
    def is_made(self) -> bool:
        """Whether the main agent made it up: neither the user nor any value says it."""
        return not (self.in_request or self.origins)


@dataclass
class ResolvedArguments:
    """A call's arguments without handles."""

    values: dict[str, Any] = field(default_factory=dict)
    leaves: list[ResolvedLeaf] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    """Arguments' texts that are a handle's form and name nothing."""


class HandleStore:
    """The values of one request.

    `first` is the number of the first call: a later one where a conversation goes on, so that no name means two things.
    """

    def __init__(self, request: UserRequest, first: int = 1) -> None:
        self._request = request
        self._stored: dict[int, StoredValue] = {}
        self._shown: dict[str, list[ValueOrigin]] = {}
        self.next_call = first

    def add(self, stored: StoredValue) -> int:
        """Keep a call's value; returns the call's number."""
        number = self.next_call
        self._stored[number] = stored
        self.next_call += 1
        return number

    def show(self, number: int, kinds: frozenset[ValueKind]) -> dict[str, Any]:
        """A value as the main agent sees it: leaves of these kinds and of the user's own words, else handles."""
        stored = self._stored[number]

        def show_leaf(leaf: Any, path: ValuePath) -> Any:
            origin = stored.origins[path]
            # In the request's own letters: even case and blanks could say something.
            said = isinstance(leaf, str) and leaf in self._request.text and self._request.contains(leaf)
            if not (origin.kind in kinds or said):
                return "$c" + ".".join(map(str, (number, *path)))
            self._shown.setdefault(write_canonical(leaf), []).append(origin)
            return leaf

        shown: dict[str, Any] = map_leaves(dict(stored.value), show_leaf)
        return shown

    def resolve(self, args: Mapping[str, Any]) -> ResolvedArguments:
        """Arguments with the values that their handles stand for, and what is known of each leaf."""
        resolved = ResolvedArguments()
        resolved.values = {name: self._resolve_node(name, value, resolved) for name, value in args.items()}
        return resolved

    def _resolve_node(self, name: str, node: Any, resolved: ResolvedArguments) -> Any:
        if isinstance(node, Mapping):
            return {key: self._resolve_node(name, child, resolved) for key, child in node.items()}
        if isinstance(node, list | tuple):
            items: list[Any] = []
            for child in node:
                value = self._resolve_node(name, child, resolved)
                # A name of a list among other names means its items.
                items += value if isinstance(child, str) and isinstance(value, list) else [value]
            return items
        if isinstance(node, str) and "$" in node:
            return self._resolve_text(name, node, resolved)
        resolved.leaves.append(self._look_up_literal(name, node))
        return node

    def _resolve_text(self, name: str, text: str, resolved: ResolvedArguments) -> Any:
        text = _BRACED.sub(lambda found: f"${found[1]}" if found[1] else str(found[2]), text)
        bare = text.strip(_WRAPPING)
        if (joined := compute_join(text, self.find)) is not None:
            value, source = joined
            resolved.leaves += [
                ResolvedLeaf(
                    name, leaf, (replace(source, path=path, kind=find_value_kind(leaf)),), by_handle=True
                )
                for path, leaf in iterate_leaves(value)
            ]
            return value
        if HANDLE.fullmatch(bare):
            located = self.find(bare)
            if located is None:
                resolved.unknown.append(bare)
                resolved.leaves.append(self._look_up_literal(name, text))
                return text
            node, origins = located
            for path, leaf in iterate_leaves(node):
                known = isinstance(leaf, str) and self._request.contains(leaf)
                found = ResolvedLeaf(name, leaf, (origins[path],), in_request=known, by_handle=True)
                resolved.leaves.append(found)
            return node
        return self._splice(name, text, resolved)

    def _splice(self, name: str, text: str, resolved: ResolvedArguments) -> str:
        """A text with the values of the handles in it; unknown names stay as they are."""
        used: list[ValueOrigin] = []

        def insert(found: re.Match[str]) -> str:
            located, rest = self._find_longest(found[0])
            if located is None:
                return found[0]
            used.extend(located[1].values())
            return write_text(located[0]) + rest

        written = HANDLE.sub(insert, text)
        if used:
            resolved.leaves.append(ResolvedLeaf(name, written, tuple(used), spliced=True, by_handle=True))
        else:
            resolved.leaves.append(self._look_up_literal(name, written))
        return written

    def _look_up_literal(self, name: str, leaf: Any) -> ResolvedLeaf:
        known = isinstance(leaf, str | int | float) and any(
            map(self._request.contains, list_number_forms(leaf))
        )
        return ResolvedLeaf(name, leaf, tuple(self._shown.get(write_canonical(leaf), ())), in_request=known)

    def find(self, handle: str) -> FoundValue | None:
        """The value behind a handle with the provenance of its leaves; None if there is none."""
        form = HANDLE.fullmatch(handle)
        stored = self._stored.get(int(form[1])) if form is not None else None
        if form is None or stored is None:
            return None
        node: Any = stored.value
        path: ValuePath = ()
        for name, index in _STEP.findall(form[2]):
            step: str | int = index or name
            if isinstance(node, list) and str(step).isdigit() and int(step) < len(node):
                step = int(step)
            elif not (isinstance(node, Mapping) and step in node):
                return None
            node, path = node[step], (*path, step)
        inside = {at[len(path) :]: origin for at, origin in stored.origins.items() if at[: len(path)] == path}
        return node, inside

    def _find_longest(self, handle: str) -> tuple[FoundValue | None, str]:
        """What the longest beginning of a text names, and the rest: `$c1.name.txt` may be `$c1.name` and `.txt`."""
        end = len(handle)
        while end > 0:
            located = self.find(handle[:end])
            if located is not None:
                return located, handle[end:]
            end = max(handle.rfind(".", 0, end), handle.rfind("[", 0, end))
        return None, ""

    def quote_handles(self, text: str) -> str:
        """An answer in which hidden values stand as quotations with their sources: the names of a sentence as one.

        What the agent wrote between two names is set off with them: it loses authority, and nobody gains any.
        """
        runs: list[list[_NamePlace]] = []
        for place in self._find_names(text):
            if runs and not _SENTENCE_END.search(text, runs[-1][-1][1], place[0]):
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in reversed(runs):
            inside, at = "", run[0][0]
            for start, end, words, _ in run:
                inside, at = inside + text[at:start] + words, end
            sources = "; ".join(dict.fromkeys(source for *_, source in run))
            inside = inside.replace('"', "'")
            text = f'{text[: run[0][0]]}"{inside}" ({sources}){text[at:]}'
        return text

    def _find_names(self, text: str) -> Iterator[_NamePlace]:
        for found in HANDLE.finditer(text):
            located, rest = self._find_longest(found[0])
            if located is not None:
                end = found.end() - len(rest)
                tool = _IN_SOURCES.sub("_", self._stored[int(found[1])].tool)
                yield found.start(), end, write_text(located[0]), f"{tool}, {text[found.start() : end]}"


_NamePlace = tuple[int, int, str, str]
"""A name in an answer: where it begins and ends, and the words and the source that stand for it."""
_SENTENCE_END = re.compile(r"\n|[.!?:;]\s")
_IN_SOURCES = re.compile(r"[()\n;]")
"""What would end a quotation's list of sources."""
_SOURCE = r"[^()\n;]{1,200}, \$c\d+(?:\.\w+|\[\d+\])+"
_QUOTATION = re.compile(rf'"[^"]*" \(({_SOURCE}(?:; {_SOURCE})*)\)')


def hide_quotations(text: str) -> str:
    """An earlier answer with names in place of quotations, as the main agent wrote it."""
    return _QUOTATION.sub(lambda quoted: ", ".join(name[0] for name in HANDLE.finditer(quoted[1])), text)


def count_first_call(texts: Iterable[str]) -> int:
    """The number of the next call where earlier messages name values already."""
    return 1 + max((int(found[1]) for text in texts for found in HANDLE.finditer(text)), default=0)


def write_text(value: Any) -> str:
    """A value as it stands inside a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def list_number_forms(leaf: object) -> list[str]:
    """The texts by which a request may say a leaf: 98.7 also as 98.70, 1200.0 as 1200."""
    if isinstance(leaf, bool):
        return []
    if isinstance(leaf, float):
        whole = [str(int(leaf))] if leaf.is_integer() else []
        return [str(leaf), f"{leaf:.2f}", *whole]
    return [str(leaf)]


_JOIN = re.compile(
    r"\s*=?\s*(?P<operator>sum|count|largest|smallest)\((?P<inside>[^()]{1,2000})\)(?:\.(?P<field>\w{1,60}))?\s*",
    re.ASCII,
)


def compute_join(text: str, find: Callable[[str], FoundValue | None]) -> tuple[Any, ValueOrigin] | None:
    """What a text gives that is a join; None for any other text, and where values are missing or not of the kind.

    Returns:
        The value, and what is known of it: it is trusted as little as the least of what it was computed from.
    """
    form = _JOIN.fullmatch(text)
    if form is None:
        return None
    operator, parts = form["operator"], [part.strip().strip("'\"`") for part in form["inside"].split(",")]
    picks = operator in ("largest", "smallest")
    if (picks and len(parts) > 2) or (form["field"] and not picks):
        return None
    located = [one for part in (parts[:1] if picks else parts) if (one := find(part)) is not None]
    if len(located) != (1 if picks else len(parts)):
        return None
    values = [value for value, _ in located]
    try:
        if picks:
            key = parts[1].removeprefix(".") if len(parts) == 2 else None
            value = _pick_record(values[0], operator, key, form["field"])
        else:
            value = _add_numbers(values) if operator == "sum" else _count_items(values)
    except _UnfitValues:
        return None
    origins = [origin for _, inside in located for origin in inside.values()]
    choice = max((origin.choice for origin in origins), default=ChosenBy.CODE)
    distance = max((origin.distance for origin in origins), default=Distance.OWN)
    rivals = any(origin.has_rivals for origin in origins)
    return value, ValueOrigin(0, operator, (), find_value_kind(value), choice, distance, rivals)


class _UnfitValues(Exception):
    """The values are not of the kind that a join takes."""


def _count_items(values: Sequence[Any]) -> int:
    if not all(isinstance(value, list) for value in values):
        raise _UnfitValues
    return sum(map(len, values))


def _add_numbers(values: Sequence[Any]) -> int | float:
    leaves = [leaf for value in values for _, leaf in iterate_leaves(value)]
    if not leaves or any(find_value_kind(leaf) is not ValueKind.NUMBER for leaf in leaves):
        raise _UnfitValues
    total = sum(Decimal(write_canonical(leaf)) for leaf in leaves)
    return int(total) if total == int(total) else float(total)


def _pick_record(records: Any, operator: str, key: str | None, wanted: str | None) -> Any:
    if not isinstance(records, list) or not records:
        raise _UnfitValues
    keys = [record.get(key) if isinstance(record, dict) else record for record in records]
    kinds = {find_value_kind(key) for key in keys}
    if kinds not in ({ValueKind.NUMBER}, {ValueKind.DATE}):
        raise _UnfitValues
    texts = map(write_canonical, keys)
    ranks: list[Any] = list(map(Decimal, texts) if kinds == {ValueKind.NUMBER} else texts)
    record = records[ranks.index(max(ranks) if operator == "largest" else min(ranks))]
    if wanted is None:
        return record
    if not isinstance(record, dict) or wanted not in record:
        raise _UnfitValues
    return record[wanted]


def taint_literal(leaf: ResolvedLeaf) -> ResolvedLeaf:
    """A literal of an agent that has read text: whoever wrote that text may have chosen it."""
    if leaf.in_request or leaf.by_handle:
        return leaf
    source = ValueOrigin(0, "", (), find_value_kind(leaf.value), ChosenBy.READER, Distance.VIA)
    return replace(leaf, origins=(source,))
