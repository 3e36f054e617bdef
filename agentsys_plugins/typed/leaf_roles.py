"""`assign_roles`: the role of each leaf of a call's arguments, by its path.

A text that the main agent did not write is content inside an object only where its own name, or what stands beside
it, says so: any other name makes it a target. What the agent wrote itself is a target where a list says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from agentsys_plugins.typed.argument_roles import ArgumentRole, ArgumentRoles
from agentsys_plugins.typed.handle_store import (
    ResolvedLeaf,
    ResolvedNode,
    ResolvedObject,
    ResolvedText,
    list_leaves,
)
from agentsys_plugins.typed.value_origin import (
    COPIED_KINDS,
    WORDLESS_KINDS,
    find_value_kind,
    names_address,
)

LeafRole = tuple[ResolvedLeaf, ArgumentRole]


def assign_roles(
    roles: ArgumentRoles, tool: str, tree: Mapping[str, ResolvedNode], declared: Collection[object] = ()
) -> Iterator[LeafRole]:
    """Each leaf of a call's arguments with its role.

    Args:
        roles: What names say.
        tool: The called tool.
        tree: Argument -> its leaves.
        declared: The names of fields in the tool's schema. Other keys of objects may be targets themselves.
    """
    walk = _RoleWalk(roles, tool, declared)
    header, table = walk.find_header(tree.values())
    for name, node in tree.items():
        own = walk if node is header else table
        yield from own.visit(node, name, roles.find_known_role(tool, name))


class _Surroundings(Enum):
    """Where the walk is: it decides what a name that no list knows makes of a text."""

    OBJECT = 0
    """In an object: a target."""
    TEXT = 1
    """In a text with names in it: an address is a target, anything else what it is outside of objects."""
    CONTENT = 2
    """In a text that is content: content."""


@dataclass(frozen=True)
class _RoleWalk:
    roles: ArgumentRoles
    tool: str
    declared: Collection[object]
    place: _Surroundings = _Surroundings.OBJECT
    columns: tuple[ArgumentRole | None, ...] = ()
    """The roles that the columns' names of a table say."""

    def visit(self, node: ResolvedNode, path: str, role: ArgumentRole | None) -> Iterator[LeafRole]:
        """The leaves of a node with their roles; `role` is what names and neighbours say of it, None: nothing."""
        if isinstance(node, ResolvedObject):
            yield from self._visit_object(node, path, role)
        elif isinstance(node, ResolvedText):
            yield from self._visit_text(node, path, role)
        elif isinstance(node, ResolvedLeaf):
            yield node, role or self._read_unknown_leaf(node, inside="." in path)
        else:
            yield from self._visit_list(node, path, role)

    def _visit_list(
        self, items: Sequence[ResolvedNode], path: str, role: ArgumentRole | None
    ) -> Iterator[LeafRole]:
        walk, roles = self, [role] * len(items)
        if all(isinstance(item, list) for item in items):
            walk = replace(self, columns=self._read_columns(items[0]) if items else ())
        elif len(self.columns) == len(items):
            roles = [
                column if column and self._is_cell(item) else role
                for column, item in zip(self.columns, items, strict=True)
            ]
        elif role is None:
            # ["To", X] and ["--to", X]: the item before says what this one is.
            words: list[ResolvedNode] = [
                item if isinstance(item, ResolvedLeaf) else [] for item in items[:-1]
            ]
            named = [None, *map(self._read_text, words)]
            beside = ArgumentRole.TARGET if any(map(_is_written_address, items)) else None
            roles = [
                one if one in _GUARDED else beside if _is_untrusted(item) else None
                for one, item in zip(named, items, strict=True)
            ]
        for at, (item, own) in enumerate(zip(items, roles, strict=True)):
            # A table's first row holds the names themselves.
            yield from (walk if at else replace(walk, columns=self.columns)).visit(item, path, own)

    def _is_cell(self, item: ResolvedNode) -> bool:
        """True if a column's name says what an item is: not of what the agent wrote, nor of an object with names."""
        if isinstance(item, ResolvedObject) and any(self._read_field(*one, "").role for one in item.entries):
            return False
        return _is_untrusted(item) or _is_written_address(item)

    def _visit_text(self, text: ResolvedText, path: str, role: ArgumentRole | None) -> Iterator[LeafRole]:
        yield text.leaf, role or self._read_unknown_leaf(text.leaf, inside="." in path)
        if role in _GUARDED:
            return
        is_content = role is ArgumentRole.CONTENT or self.place is _Surroundings.CONTENT
        for part, is_object in text.open(is_content):
            place = (
                _Surroundings.CONTENT
                if is_content
                else _Surroundings.OBJECT
                if is_object
                else _Surroundings.TEXT
            )
            walk = replace(self, place=place)
            for leaf, own in walk.visit(part, path, None):
                if own is not ArgumentRole.CONTENT:
                    yield leaf, own

    def _read_unknown_leaf(self, leaf: ResolvedLeaf, *, inside: bool) -> ArgumentRole:
        """The role of a leaf of which no name says anything."""
        named = _find_strictest(map(self.roles.read_name, leaf.assigned))
        if named is not None:
            return named
        if self.place is _Surroundings.CONTENT:
            return ArgumentRole.CONTENT
        is_target = names_address(leaf.value) or (self.place is _Surroundings.OBJECT and _is_untrusted(leaf))
        return ArgumentRole.TARGET if inside and is_target else self.roles.unknown

    def _visit_object(self, node: ResolvedObject, path: str, role: ArgumentRole | None) -> Iterator[LeafRole]:
        fields = [self._read_field(key, below, path) for key, below in node.entries]
        # Content says what an object is for, and not what each of its fields is.
        around = None if role is ArgumentRole.CONTENT else role
        header, table = self.find_header(field.below for field in fields)
        for at, field in enumerate(fields):
            if self._is_judged_key(field):
                yield field.key, ArgumentRole.TARGET
            own = self._find_role(field, fields[:at] + fields[at + 1 :], around, path)
            walk = self if field.below is header else table
            # A key that is a hidden value is no name.
            yield from walk.visit(
                field.below, f"{path}.{'' if field.key.by_handle else field.key.value}", own
            )

    def _read_field(self, key: ResolvedLeaf, below: ResolvedNode, path: str) -> _Field:
        if key.by_handle:  # Whoever wrote it chose its words.
            return _Field(key, below, None, False)
        name, given = str(key.value), self.roles.tools.get(self.tool, {})
        role = given.get(f"{path}.{name}") or self.roles.read_name(name, inside=True)
        return _Field(key, below, role, role is None and self.roles.is_unnamed(name))

    def find_header(self, nodes: Iterable[ResolvedNode]) -> tuple[ResolvedNode | None, _RoleWalk]:
        """The list among nodes that holds the names of a table's columns, and the walk through the table."""
        header = next((node for node in nodes if any(self._read_columns(node))), None)
        return header, self if header is None else replace(self, columns=self._read_columns(header))

    def _read_columns(self, node: ResolvedNode) -> tuple[ArgumentRole | None, ...]:
        """The guarded roles that the items of a list of names say; none where it is no such list."""
        if not isinstance(node, list) or any(map(_is_untrusted, node)):
            return ()
        named = map(self._read_text, node)
        return tuple(role if role in _GUARDED else None for role in named)

    def _find_role(
        self, field: _Field, others: Sequence[_Field], around: ArgumentRole | None, path: str
    ) -> ArgumentRole | None:
        """Find a field's role by its own name, its neighbours and the names around."""
        names = field.key.value in _NAMING_TARGETS and any(other.is_unnamed for other in others)
        if names and self._read_text(field.below):  # {"key": "recipient", "value": ...}
            return ArgumentRole.CONTENT
        if field.role is ArgumentRole.CONTENT and field.key.value in _WEAK_CONTENT:
            said = [self._read_text(other.below) for other in others if other.is_name]
            # {"name": ..., "address": "bob@blue.org"}: the address says who it is.
            if self.roles.is_holder(path) or any(other.has_address for other in others):
                around = None
            return _find_strictest(one for one in (around, *said) if one in _GUARDED) or field.role
        if field.role is not None:
            return field.role
        texts = [other for other in others if other.may_name and (field.is_unnamed or other.role is None)]
        named = _find_strictest(self._read_text(other.below) for other in texts)
        if field.is_unnamed and named is None:
            hidden = _is_untrusted(field.below) and any(other.is_hidden_name for other in texts)
            if hidden or any(other.role in _GUARDED for other in others):
                return ArgumentRole.TARGET
            # Nothing says what it is the value of.
            return around or (None if any(other.is_name for other in others) else ArgumentRole.CONTENT)
        return named or around

    def _read_text(self, node: ResolvedNode) -> ArgumentRole | None:
        """The role that texts of the agent's own say as names would: `recipient`, or {"text": "recipient"}."""
        texts = [str(leaf.value) for leaf in list_leaves(node) if not _is_untrusted(leaf)]
        short = [text for text in texts if len(text) <= _NAME_CHARS and len(text.split()) <= _NAME_WORDS]
        return _find_strictest(self.roles.read_name(text, inside=True) for text in short)

    def _is_judged_key(self, field: _Field) -> bool:
        """True if a key of an object says whom something acts on, as in {"bob@blue.org": "owner"}."""
        key = field.key
        if key.value in self.declared or (field.role is not None and not key.by_handle):
            return False
        return bool(key.by_handle or key.origins) or find_value_kind(key.value) in COPIED_KINDS


@dataclass(frozen=True)
class _Field:
    """A field of an object in an argument."""

    key: ResolvedLeaf
    below: ResolvedNode
    role: ArgumentRole | None
    """What its own name says."""
    is_unnamed: bool
    """Whether its name says nothing, as `value` does."""

    @property
    def has_address(self) -> bool:
        """True if it says itself whom an object is of."""
        named = self.role is ArgumentRole.TARGET or self.is_unnamed
        return named and any(names_address(leaf.value) for leaf in list_leaves(self.below))

    @property
    def is_name(self) -> bool:
        """True if it holds the name of what stands beside it."""
        return str(self.key.value).lower() in _NAMING_FIELDS

    @property
    def is_hidden_name(self) -> bool:
        """True if it may name anything: nobody has seen its text."""
        is_text = isinstance(self.below, ResolvedLeaf | ResolvedText)
        return is_text and _is_untrusted(self.below) and (self.role is None or self.is_name)

    @property
    def may_name(self) -> bool:
        """True if its text may be the name of its neighbour: not that of a target, an `id` or a `key` aside."""
        named = not self.is_unnamed and self.role not in _GUARDED
        return named or str(self.key.value).lower() in _NAMING_TARGETS


_GUARDED = (ArgumentRole.SECRET, ArgumentRole.TARGET)
_STRICTEST = (*_GUARDED, ArgumentRole.QUANTITY, ArgumentRole.CONTENT)
_NAMING_TARGETS = ("key", "id")
_WEAK_CONTENT = (
    *("text", "rich_text", "content", "title", "first", "query", "plain_text", "string"),
    *("name", "names", "label", "answer", "rows", "row", "cells", "cell"),
)
"""Names inside objects that hold whatever is around them: `{"recipient": {"text": ...}}`."""
_NAMING_FIELDS = {"name", "key", "id", "field", "header", "label", "property", "column", "question"}
_NAME_WORDS = 3
"""Most words of a text that names its neighbour: "Please reply to Bob" names nothing."""
_NAME_CHARS = 60
"""Longest text that is read as a name."""


def _is_untrusted(node: ResolvedNode) -> bool:
    """True if somebody else than the user and the main agent chose the words of a leaf, or of one below."""
    return any(
        leaf.by_handle
        or (not leaf.in_request and any(one.kind not in WORDLESS_KINDS for one in leaf.origins))
        for leaf in list_leaves(node)
    )


def _is_written_address(node: ResolvedNode) -> bool:
    return isinstance(node, ResolvedLeaf) and not _is_untrusted(node) and names_address(node.value)


def _find_strictest(found: Iterable[ArgumentRole | None]) -> ArgumentRole | None:
    return min((role for role in found if role is not None), key=_STRICTEST.index, default=None)
