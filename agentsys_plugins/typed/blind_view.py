"""The blind view: a tool's value without any text that a third party may have written.

Each text that is cut out leaves a mark with its number and length: a worker that sees the view alone can point at it.
Which records somebody else wrote is told from the fields of their classes (`record_writers.yaml`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml

from agentsys.base.json_values import read_json_data
from agentsys.defense.prompts import TEXT_MARK
from agentsys.models.untrusted import UserRequest
from agentsys_plugins.typed.value_origin import (
    ValueKind,
    find_value_kind,
    iterate_leaves,
    map_leaves,
    write_canonical,
)

IsForeign = Callable[[object], bool]
"""Whether a third party may have written a whole record, its closed leaves included."""


@dataclass
class BlindView:
    """A value without its foreign texts."""

    tree: Any = None
    """What is left, as plain data."""
    texts: list[str] = field(default_factory=list)
    """The texts that were cut out, by number from 1."""
    keys_cut: int = 0
    """Number of keys that were cut out."""
    leaves: set[str] = field(default_factory=set)
    """The leaves and keys that are left, in canonical form."""

    @property
    def text(self) -> str:
        """The view as a worker reads it."""
        return _write_tree(self.tree)

    @property
    def is_whole(self) -> bool:
        """True if nothing was cut out: then the value holds no third party's text."""
        return not (self.texts or self.keys_cut)

    def holds(self, value: object, leaves: Set[str] | None = None) -> bool:
        """True if each leaf of a value stands in the view, letter for letter, numbers and dates in any form.

        A mark stands for its text. `leaves` are those of the view that count; None: all.
        """
        known = self.leaves if leaves is None else leaves
        return all(
            write_canonical(leaf) in known or self.fill_marks(leaf) is not leaf
            for _, leaf in iterate_leaves(value)
        )

    def find_marks(self, value: object) -> frozenset[int]:
        """The numbers of the texts that a worker's value points at."""
        said = [leaf for _, leaf in iterate_leaves(value) if isinstance(leaf, str)]
        numbers = {int(number) for leaf in said for number, _ in TEXT_MARK.findall(leaf)}
        return frozenset(number for number in numbers if 1 <= number <= len(self.texts))

    def fill_marks(self, value: Any) -> Any:
        """A worker's value with the texts that its leaves are marks of; a closed value has to be read."""

        def fill(leaf: Any, _: object) -> Any:
            text = self.texts[number - 1] if (number := self._read_mark(leaf)) else ""
            return text if text and find_value_kind(text) is ValueKind.TEXT else leaf

        return map_leaves(value, fill)

    def _read_mark(self, leaf: object) -> int:
        """The number of the text whose mark a leaf is; 0 for any other leaf."""
        return next(iter(self.find_marks(leaf)), 0) if _is_mark(leaf) else 0

    def open(self, numbers: frozenset[int]) -> str:
        """The view with these texts in their places; of lists the items alone that hold one."""
        return _write_tree(self._open_node(self.tree, numbers)[0])

    def _open_node(self, node: Any, numbers: frozenset[int]) -> tuple[Any, bool]:
        """A node with texts in their places, and whether there is one."""
        if isinstance(node, dict):
            opened = {key: self._open_node(child, numbers) for key, child in node.items()}
            return {key: child for key, (child, _) in opened.items()}, any(has for _, has in opened.values())
        if isinstance(node, list):
            items = [self._open_node(item, numbers) for item in node]
            kept = [item for item, has in items if has]
            return kept or [item for item, _ in items], bool(kept)
        has = self._read_mark(node) in numbers
        return (self.texts[self._read_mark(node) - 1] if has else node), has


def _write_tree(tree: Any) -> str:
    return yaml.safe_dump(tree).strip() if isinstance(tree, dict | list) else str(tree)


def build_blind_view(value: Any, request: UserRequest, is_foreign: IsForeign | None = None) -> BlindView:
    """Cut a tool's value down to what nobody else wrote in words.

    Kept are leaves of a closed form (a word only where it stands alone: a list of words is a sentence) and
    leaves that stand in the request; text that is JSON is taken for what it holds. Of a foreign record nothing is.
    """
    view = BlindView()
    data = read_json_data(value) if isinstance(value, str) else None
    view.tree = _cut_node(
        value if data is None else data, request, view, is_foreign or (lambda record: False), False
    )
    view.leaves |= {write_canonical(leaf) for _, leaf in iterate_leaves(view.tree) if not _is_mark(leaf)}
    return view


def _cut_node(value: Any, request: UserRequest, view: BlindView, is_foreign: IsForeign, listed: bool) -> Any:
    if is_foreign(value):
        return _cut_out(value, view)
    if hasattr(type(value), "model_fields"):
        return {
            name: _cut_node(getattr(value, name), request, view, is_foreign, False)
            for name in type(value).model_fields
        }
    if isinstance(value, Mapping):
        return {
            _cut_key(key, place, request, view): _cut_node(child, request, view, is_foreign, False)
            for place, (key, child) in enumerate(value.items(), 1)
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_cut_node(item, request, view, is_foreign, True) for item in value]
    return _cut_leaf(value.value if isinstance(value, Enum) else value, request, view, listed)


def _cut_key(key: object, place: int, request: UserRequest, view: BlindView) -> object:
    kind = find_value_kind(key)
    if kind is not ValueKind.TEXT or request.says(key):
        # A word is the name of a field; an address may say who has which right.
        if kind is not ValueKind.WORD:
            view.leaves.add(write_canonical(key))
        return key
    view.keys_cut += 1
    return f"key_{place}"


def _cut_leaf(leaf: Any, request: UserRequest, view: BlindView, listed: bool) -> Any:
    kind = find_value_kind(leaf)
    closed = kind is not ValueKind.TEXT and not (listed and kind is ValueKind.WORD)
    if closed or leaf == "" or request.says(leaf):
        return leaf if isinstance(leaf, bool | int | float | str) or leaf is None else write_canonical(leaf)
    return _cut_out(leaf, view)


def _cut_out(value: object, view: BlindView) -> str:
    """The mark that stands for what is cut out."""
    view.texts.append(str(value))
    return f"<text {len(view.texts)}, {len(str(value))} characters>"


def _is_mark(leaf: object) -> bool:
    """True if a leaf of the view stands for one that was cut out."""
    return isinstance(leaf, str) and TEXT_MARK.fullmatch(leaf.strip()) is not None


def find_foreign_records(environment: object) -> IsForeign:
    """Tell whether anybody but an environment's user may have written a record; never of a class no table knows."""
    table = _load_writers()
    held = (
        reduce(lambda node, step: getattr(node, step, None), p.split("."), environment) for p in table["own"]
    )
    own = {*(str(name) for name in held if name is not None), *table["own_words"]}

    def is_foreign(record: object) -> bool:
        paths = table["classes"].get(type(record).__name__, ())
        return any(name not in own for path in paths for name in _list_names(record, path))

    return is_foreign


@cache
def _load_writers() -> dict[str, Any]:
    """Class of an object -> its fields that name who may have written it; `shared_with.rw`: keys with that right."""
    table: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("record_writers.yaml").read_text("utf-8"))
    return table


def _list_names(record: object, path: str) -> list[str]:
    name, _, right = path.partition(".")
    held = getattr(record, name, None)
    if isinstance(held, Mapping):
        held = [key for key, given in held.items() if not right or str(given) == right]
    if held is None:
        return []
    return [str(one) for one in held] if isinstance(held, list | tuple | set) else [str(held)]
