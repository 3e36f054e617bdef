"""`HandleStore`: accepted values under names such as `$c3.body`, which the main agent passes on unread.

A handle is resolved once: what it stands for is never searched for handles again. It can take steps into
mappings and lists, and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from agentsys.base.json_values import read_json_data
from agentsys.models.loose_json import map_json_text
from agentsys.models.untrusted import UserRequest
from agentsys_plugins.typed.text_structures import MAX_CHARS, read_notes, read_structure
from agentsys_plugins.typed.value_joins import FoundValue, compute_join
from agentsys_plugins.typed.value_origin import (
    WORDLESS_KINDS,
    ChosenBy,
    Distance,
    ValueKind,
    ValueOrigin,
    ValuePath,
    find_value_kind,
    map_leaves,
    write_canonical,
)

HANDLE = re.compile(r"\$c(\d{1,6})((?:\.\w{1,60}|\[\d{1,6}\])+)", re.ASCII)
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]", re.ASCII)
_WRAPPING = " \t\r\n`'\"<>{}()"
"""What models write around a name."""
_BRACED = re.compile(r"\$\{(c\d[^{}]*)\}|\{\{?\s*(\$c\d[^{}]*?)\s*\}?\}")
"""Ways in which models write a name into a template: `${c1.x}`, `{{$c1.x}}`."""
_ASSIGNED = re.compile(r"([A-Za-z][\w-]{0,40})\s{0,5}[:=]\s{0,5}[\"'<(]{0,5}$", re.ASCII)
_ASSIGNED_CHARS = 60
_QUOTE_BARE = re.compile(rf"([:\[,]\s*)({HANDLE.pattern})(?=\s*[,}}\]])", re.ASCII)
"""A name in JSON without its quotation marks."""


@dataclass(frozen=True)
class StoredValue:
    """Value that one call gave."""

    tool: str
    value: Mapping[str, Any]
    origins: Mapping[ValuePath, ValueOrigin]
    """ValueOrigin of each leaf."""


@dataclass(frozen=True)
class ResolvedLeaf:
    """One leaf of an argument, as it will run."""

    argument: str
    """Its place, as the main agent wrote it: `recipient`, `message.to`, `fields[].value`."""
    value: Any
    origins: tuple[ValueOrigin, ...] = ()
    """Of a handle that of its value; of a literal those of all equal values that were shown."""
    in_request: bool = False
    """Whether it stands in the user's request."""
    spliced: bool = False
    """Whether values were put into a longer text."""
    by_handle: bool = False
    assigned: tuple[str, ...] = ()
    """The names that stand before the values in that text: `to` of `to=$c1.sender`."""

    @property
    def is_made(self) -> bool:
        """True if the main agent made it up: neither the user nor any value says it."""
        return not (self.in_request or self.origins)


@dataclass(frozen=True)
class ResolvedObject:
    """An object inside an argument."""

    entries: tuple[tuple[ResolvedLeaf, ResolvedNode], ...]
    """Its keys, and what stands under each."""


@dataclass(frozen=True)
class ResolvedText:
    """A text with other people's words in it, which may be, or hold, objects and lists."""

    leaf: ResolvedLeaf
    open: Callable[[bool], list[tuple[ResolvedNode, bool]]]
    """(whether it is content) -> what it holds as a structure, and whether it is that as a whole."""


ResolvedNode: TypeAlias = "ResolvedLeaf | ResolvedText | ResolvedObject | list[ResolvedNode]"


@dataclass
class ResolvedArguments:
    """A call's arguments without handles."""

    values: dict[str, Any] = field(default_factory=dict)
    tree: dict[str, ResolvedNode] = field(default_factory=dict)
    """What is known of each of their leaves, of those in texts that are JSON of the agent's own, too."""
    unknown: list[str] = field(default_factory=list)
    """Arguments' texts that are a handle's form and name nothing."""

    @property
    def leaves(self) -> list[ResolvedLeaf]:
        """All leaves, and the keys that are hidden values."""
        return [leaf for node in self.tree.values() for leaf in list_leaves(node)]


def list_leaves(node: ResolvedNode) -> Iterator[ResolvedLeaf]:
    """The leaves of a node, and the keys that are hidden values."""
    if isinstance(node, ResolvedLeaf | ResolvedText):
        yield node if isinstance(node, ResolvedLeaf) else node.leaf
    elif isinstance(node, ResolvedObject):
        for key, below in node.entries:
            yield from [key] if key.by_handle else []
            yield from list_leaves(below)
    else:
        for item in node:
            yield from list_leaves(item)


def _build_tree(
    value: Any,
    open_leaf: Callable[[Any, ValuePath], ResolvedNode],
    open_key: Callable[[str], ResolvedLeaf],
    path: ValuePath = (),
) -> ResolvedNode:
    if isinstance(value, Mapping):
        return ResolvedObject(
            tuple(
                (open_key(key), _build_tree(child, open_leaf, open_key, (*path, key)))
                for key, child in value.items()
            )
        )
    if isinstance(value, list):
        return [_build_tree(item, open_leaf, open_key, (*path, at)) for at, item in enumerate(value)]
    return open_leaf(value, path)


def _name_place(place: str) -> str:
    while place.endswith("[]"):
        place = place[:-2]
    return place


class HandleStore:
    """The values of one request.

    `first` is the number of the first call: a later one where a conversation goes on, so that no name means two things.
    """

    def __init__(self, request: UserRequest, first: int = 1) -> None:
        self._request = request
        self._stored: dict[int, StoredValue] = {}
        self._shown: dict[str, list[ValueOrigin]] = {}
        self.next_call = first
        self.answers: dict[str, str] = {}
        """Answers as the user read them -> as the main agent wrote them."""
        self.taints_literals = False
        """Whether the main agent has read a text: then its own words are no longer its own."""

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
            said = isinstance(leaf, str) and leaf in self._request.text and self._request.says(leaf)
            if not (origin.kind in kinds or said):
                return "$c" + ".".join(map(str, (number, *path)))
            self._shown.setdefault(write_canonical(leaf), []).append(origin)
            return leaf

        shown: dict[str, Any] = map_leaves(dict(stored.value), show_leaf)
        return shown

    def resolve(self, args: Mapping[str, Any]) -> ResolvedArguments:
        """Arguments with the values that their handles stand for, and what is known of each leaf."""
        resolved = ResolvedArguments()
        for name, value in args.items():
            resolved.values[name], resolved.tree[name] = self._resolve_node(name, value, resolved)
        return resolved

    def _resolve_node(self, place: str, node: Any, resolved: ResolvedArguments) -> tuple[Any, ResolvedNode]:
        if isinstance(node, Mapping):
            values, entries = {}, []
            for key, child in node.items():
                named, known = self._resolve_key(place, key, resolved)
                values[named], below = self._resolve_node(f"{place}.{key}", child, resolved)
                entries.append((known, below))
            return values, ResolvedObject(tuple(entries))
        if isinstance(node, list | tuple):
            items: list[Any] = []
            nodes: list[ResolvedNode] = []
            for child in node:
                value, below = self._resolve_node(f"{place}[]", child, resolved)
                # A name of a list among other names means its items.
                opened = isinstance(child, str) and isinstance(value, list) and isinstance(below, list)
                items += value if opened else [value]
                nodes += below if opened and isinstance(below, list) else [below]
            return items, nodes
        if isinstance(node, str):
            return self._resolve_text(place, node, resolved)
        return node, self._look_up_literal(place, node)

    def _resolve_key(self, place: str, key: Any, resolved: ResolvedArguments) -> tuple[Any, ResolvedLeaf]:
        if not (isinstance(key, str) and "$" in key):
            return key, self._look_up_literal(place, key)
        written, leaf = self._splice(place, key)
        if HANDLE.fullmatch(bare := key.strip(_WRAPPING)):
            resolved.unknown += [] if leaf.by_handle else [bare]
            leaf = replace(leaf, spliced=False)
        return written, leaf

    def _resolve_text(self, place: str, text: str, resolved: ResolvedArguments) -> tuple[Any, ResolvedNode]:
        for form in dict.fromkeys((text, _QUOTE_BARE.sub(r'\1"\2"', text))):
            if (data := read_json_data(form)) is not None:
                value, node = self._resolve_node(place, data, resolved)
                return (json.dumps(value, ensure_ascii=False) if "$" in text else text), node
        if "$" not in text:
            found = self._look_up_literal(place, text)
            return text, self._open_form(found, text) if self.taints_literals else found
        text = _BRACED.sub(lambda found: f"${found[1]}" if found[1] else str(found[2]), text)
        bare = text.strip(_WRAPPING)
        if (joined := compute_join(text, self.find)) is not None:
            value, source = joined
            return value, self._open_value(
                place, value, lambda path, leaf: replace(source, path=path, kind=find_value_kind(leaf))
            )
        if HANDLE.fullmatch(bare):
            located = self.find(bare)
            if located is None:
                resolved.unknown.append(bare)
                return text, self._look_up_literal(place, text)
            value, origins = located
            return value, self._open_value(place, value, lambda path, _: origins[path])
        written, leaf = self._splice(place, text)
        return written, self._open_form(leaf, text) if leaf.by_handle or self.taints_literals else leaf

    def _open_form(self, leaf: ResolvedLeaf, form: str) -> ResolvedText:
        """A text that the main agent put values into; what it holds is judged with each value in its own place."""
        quoted = _QUOTE_BARE.sub(r'\1"\2"', form)

        def open_form(is_content: bool) -> list[tuple[ResolvedNode, bool]]:
            whole = read_structure(quoted)
            parts = [whole] if whole is not None else read_notes(quoted, as_people_write=not is_content)
            return [
                (self._resolve_node(leaf.argument, part, ResolvedArguments())[1], whole is not None)
                for part in parts
                if part is not None
            ]

        return ResolvedText(leaf, open_form)

    def _open_value(
        self, place: str, value: Any, know: Callable[[ValuePath, Any], ValueOrigin]
    ) -> ResolvedNode:
        """The leaves of a hidden value; the keys of its objects are names that the main agent chose."""

        def open_leaf(leaf: Any, path: ValuePath) -> ResolvedNode:
            said = isinstance(leaf, str) and self._request.says(leaf)
            within = place + "".join("[]" if isinstance(step, int) else f".{step}" for step in path)
            found = ResolvedLeaf(
                _name_place(within), leaf, (know(path, leaf),), in_request=said, by_handle=True
            )
            return self._open_text(found) if find_value_kind(leaf) is ValueKind.TEXT else found

        return _build_tree(value, open_leaf, lambda key: ResolvedLeaf(place, key))

    def _open_text(self, text: ResolvedLeaf) -> ResolvedText:
        """A hidden text. What it holds is as foreign as it is, keys too; of content only JSON is looked at."""

        def open_leaf(leaf: Any, _: object = ()) -> ResolvedLeaf:
            return replace(text, value=leaf, in_request=isinstance(leaf, str) and self._request.says(leaf))

        def open_text(is_content: bool) -> list[tuple[ResolvedNode, bool]]:
            written = str(text.value)
            parts = [read_json_data(written)]
            if parts == [None] and not is_content:
                # Padding hides nothing: what is too long to be looked through counts as a target.
                whole = {"": written} if len(written) > MAX_CHARS else read_structure(written)
                parts = [whole, *read_notes(written, as_people_write=True)]
            return [(_build_tree(part, open_leaf, open_leaf), False) for part in parts if part is not None]

        return ResolvedText(text, open_text)

    def _splice(self, place: str, text: str) -> tuple[str, ResolvedLeaf]:
        """A text with the values of the handles in it; unknown names stay as they are."""
        used: list[ValueOrigin] = []
        assigned: list[str] = []

        def insert(found: re.Match[str]) -> str:
            located, rest = self._find_longest(found[0])
            if located is None:
                return found[0]
            used.extend(located[1].values())
            before = _ASSIGNED.search(text[max(0, found.start() - _ASSIGNED_CHARS) : found.start()])
            assigned.extend([before[1]] if before else [])
            return write_text(located[0]) + rest

        written = HANDLE.sub(insert, text)
        if not used:
            return written, self._look_up_literal(place, written)
        leaf = ResolvedLeaf(_name_place(place), written, tuple(used), spliced=True, by_handle=True)
        return written, replace(leaf, assigned=tuple(assigned))

    def _look_up_literal(self, place: str, leaf: Any) -> ResolvedLeaf:
        known = isinstance(leaf, str | int | float) and any(map(self._request.says, list_number_forms(leaf)))
        origins = tuple(self._shown.get(write_canonical(leaf), ()))
        found = ResolvedLeaf(_name_place(place), leaf, origins, in_request=known)
        return taint_literal(found) if self.taints_literals else found

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
        """Split a text after its longest beginning that is a name: `$c1.name.txt` may be `$c1.name` and `.txt`."""
        end = len(handle)
        while end > 0:
            located = self.find(handle[:end])
            if located is not None:
                return located, handle[end:]
            end = max(handle.rfind(".", 0, end), handle.rfind("[", 0, end))
        return None, ""

    def write_answer(self, text: str) -> str:
        """An answer as the user reads it: hidden values as quotations, in JSON each in its place and of its type."""
        forms = (text, _QUOTE_BARE.sub(r'\1"\2"', text)) if HANDLE.search(text) else ()
        filled = (map_json_text(form, self._fill_leaf) for form in forms)
        answer = next((one for one in filled if one is not None), None) or self.quote_handles(text)
        self.answers[answer] = text
        return answer

    def _fill_leaf(self, text: str) -> Any:
        located = self.find(text.strip(_WRAPPING))
        return self.quote_handles(text) if located is None else located[0]

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


def hide_answer(text: str) -> str:
    """An earlier answer without hidden texts: names in place of quotations, and of JSON what holds no words."""
    in_json = map_json_text(
        text, lambda leaf: leaf if find_value_kind(leaf) in WORDLESS_KINDS else HIDDEN_ANSWER
    )
    return hide_quotations(text) if in_json is None else in_json


HIDDEN_ANSWER = "(text of an earlier answer)"


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


def taint_literal(leaf: ResolvedLeaf) -> ResolvedLeaf:
    """A literal of an agent that has read text: whoever wrote that text may have chosen it."""
    if leaf.in_request or leaf.by_handle:
        return leaf
    source = ValueOrigin(0, "", (), find_value_kind(leaf.value), ChosenBy.READER, Distance.VIA)
    return replace(leaf, origins=(source,))
