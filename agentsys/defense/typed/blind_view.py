"""The blind view: a tool's value without any text that a third party may have written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from agentsys.defense.call_trace import UserRequest
from agentsys.defense.typed.value_origin import (
    ValueKind,
    convert_to_plain,
    find_value_kind,
    iterate_leaves,
    write_canonical,
)

IsForeign = Callable[[object], bool]
"""Whether a third party may have written a whole record, its closed leaves included."""


@dataclass
class BlindView:
    """What is left of a value."""

    text: str = ""
    """The view as a worker reads it."""
    cut: int = 0
    """Number of leaves and keys that were cut out."""
    leaves: set[str] = field(default_factory=set)
    """The leaves that are left, in canonical form."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut out: then the value holds no third party's text."""
        return not self.cut

    def holds(self, value: object) -> bool:
        """Whether each leaf of a value stands in the view, letter for letter, numbers and dates in any form."""
        return all(write_canonical(leaf) in self.leaves for _, leaf in iterate_leaves(value))


def build_blind_view(value: Any, request: UserRequest, is_foreign: IsForeign | None = None) -> BlindView:
    """Cut a tool's value down to what nobody else wrote in words.

    Kept are leaves of a closed form (a word only where it stands alone: a list of words is a sentence) and
    leaves that stand in the request; text that is JSON is taken for what it holds. Of a foreign record nothing is.
    """
    view = BlindView()
    shown = _cut_node(_read_json_text(value), request, view, is_foreign or (lambda record: False), False)
    view.leaves = {write_canonical(leaf) for _, leaf in iterate_leaves(shown) if not _is_sign(leaf)}
    view.text = yaml.safe_dump(shown).strip() if isinstance(shown, dict | list) else str(shown)
    return view


def _read_json_text(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _cut_node(value: Any, request: UserRequest, view: BlindView, is_foreign: IsForeign, listed: bool) -> Any:
    if is_foreign(value):
        return _cut_out(value, view)
    if hasattr(type(value), "model_fields"):
        return {
            name: _cut_node(getattr(value, name), request, view, is_foreign, False)
            for name in type(value).model_fields
        }
    value = convert_to_plain(value) if not isinstance(value, Mapping | list | tuple | set) else value
    if isinstance(value, Mapping):
        return {
            _cut_key(key, place, request, view): _cut_node(child, request, view, is_foreign, False)
            for place, (key, child) in enumerate(value.items(), 1)
        }
    if isinstance(value, list | tuple | set):
        return [_cut_node(item, request, view, is_foreign, True) for item in value]
    return _cut_leaf(value, request, view, listed)


def _cut_key(key: object, place: int, request: UserRequest, view: BlindView) -> object:
    kind = find_value_kind(key)
    if kind is not ValueKind.TEXT or request.contains(str(key)):
        return key
    view.cut += 1
    return f"key_{place}"


def _cut_leaf(leaf: Any, request: UserRequest, view: BlindView, listed: bool) -> Any:
    kind = find_value_kind(leaf)
    closed = kind is not ValueKind.TEXT and not (listed and kind is ValueKind.WORD)
    if closed or request.contains(str(leaf)):
        return leaf if isinstance(leaf, bool | int | float | str) or leaf is None else write_canonical(leaf)
    return _cut_out(leaf, view)


def _cut_out(value: object, view: BlindView) -> str:
    """The sign that stands for what is cut out."""
    view.cut += 1
    return f"<text, {len(str(value))} characters>"


def _is_sign(leaf: object) -> bool:
    """Whether a leaf of the view stands for one that was cut out."""
    return isinstance(leaf, str) and _SIGN.fullmatch(leaf) is not None


_SIGN = re.compile(r"<text, \d+ characters>")
