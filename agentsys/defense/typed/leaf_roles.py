"""`assign_roles`: the role of each leaf of a call's arguments, by its path.

A leaf's own name goes first, then what stands beside it, then the names around it: `message.to` is a target though
`message` is content, and so is `value` beside `name: recipient`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentsys.defense.typed.argument_roles import ArgumentRole, ArgumentRoles
from agentsys.defense.typed.handle_store import ResolvedLeaf, ResolvedNode, ResolvedObject
from agentsys.defense.typed.value_origin import COPIED_KINDS, find_value_kind, names_address

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
    for name, node in tree.items():
        yield from walk.visit(node, name, roles.find_known_role(tool, name))


@dataclass(frozen=True)
class _RoleWalk:
    roles: ArgumentRoles
    tool: str
    declared: Collection[object]

    def visit(self, node: ResolvedNode, path: str, role: ArgumentRole | None) -> Iterator[LeafRole]:
        """The leaves of a node with their roles; `role` is what names and neighbours say of it, None: nothing."""
        if isinstance(node, ResolvedObject):
            yield from self._visit_object(node, path, role)
        elif isinstance(node, ResolvedLeaf):
            yield node, role or self._read_unknown_leaf(node, inside="." in path)
        else:
            for at, item in enumerate(node):
                # ["To", X] and ["--to", X]: the item before says what this one is.
                named = self._read_text(node[at - 1]) if at and role is None else None
                yield from self.visit(item, path, named if named in _GUARDED else role)

    def _read_unknown_leaf(self, leaf: ResolvedLeaf, *, inside: bool) -> ArgumentRole:
        """The role of a leaf of which no name says anything; an address inside an object is a target by its form."""
        named = _find_strictest(map(self.roles.read_name, leaf.assigned))
        is_target = inside and named is None and names_address(leaf.value)
        return ArgumentRole.TARGET if is_target else named or self.roles.unknown

    def _visit_object(self, node: ResolvedObject, path: str, role: ArgumentRole | None) -> Iterator[LeafRole]:
        fields = [self._read_field(key, below, path) for key, below in node.entries]
        # Content says what an object is for, and not what each of its fields is.
        around = None if role is ArgumentRole.CONTENT else role
        for at, field in enumerate(fields):
            if self._is_judged_key(field):
                yield field.key, ArgumentRole.TARGET
            names = field.key.value in _NAMING_TARGETS and any(other.is_unnamed for other in fields)
            own = None if names and self._read_text(field.below) else field.role
            if own is ArgumentRole.CONTENT and field.key.value in _WEAK_CONTENT:
                own = self._find_guard(at, fields, around) or own
            found = own or self._ask_neighbours(at, fields) or around
            yield from self.visit(field.below, f"{path}.{field.key.value}", found)

    def _read_field(self, key: ResolvedLeaf, below: ResolvedNode, path: str) -> _Field:
        if key.by_handle:  # Whoever wrote it chose its words.
            return _Field(key, below, None, False)
        name, given = str(key.value), self.roles.tools.get(self.tool, {})
        role = given.get(f"{path}.{name}") or self.roles.read_name(name, inside=True)
        return _Field(key, below, role, role is None and self.roles.is_unnamed(name))

    def _find_guard(
        self, at: int, fields: Sequence[_Field], around: ArgumentRole | None
    ) -> ArgumentRole | None:
        """The guarded role that the names around a text, or a neighbour that names it, give to it."""
        names = [
            self._read_text(other.below)
            for place, other in enumerate(fields)
            if place != at and str(other.key.value).lower() in _NAMING_FIELDS and _is_short(other.below)
        ]
        return _find_strictest(role for role in (around, *names) if role in _GUARDED)

    def _ask_neighbours(self, at: int, fields: Sequence[_Field]) -> ArgumentRole | None:
        """What the other fields of an object say of one whose own name is in no list."""
        field, others = fields[at], [other for place, other in enumerate(fields) if place != at]
        texts = [other for other in others if not other.is_unnamed and other.may_name]
        held = ArgumentRole.TARGET if any(other.role in _GUARDED for other in others) else None
        if field.is_unnamed:
            return _find_strictest(map(self._read_name_of, texts)) or held
        if any(other.is_unnamed for other in others) and isinstance(field.below, ResolvedLeaf):
            # It names its neighbour: a name that the agent wrote is no target, one that it does not see may be.
            named = self._read_name_of(field)
            return ArgumentRole.CONTENT if named and not field.below.by_handle else named
        named = _find_strictest(self._read_text(other.below) for other in texts if other.role is None)
        found = named if named in _GUARDED else held
        is_number = isinstance(field.below, ResolvedLeaf) and isinstance(field.below.value, int | float)
        return ArgumentRole.QUANTITY if found and is_number else found

    def _read_name_of(self, field: _Field) -> ArgumentRole | None:
        """The role that a field's text names for its neighbour; a hidden text may name anything."""
        hidden = isinstance(field.below, ResolvedLeaf) and field.below.by_handle
        return ArgumentRole.TARGET if hidden else self._read_text(field.below)

    def _read_text(self, node: ResolvedNode) -> ArgumentRole | None:
        """The role that a text of the agent's own says as a name would."""
        if not isinstance(node, ResolvedLeaf) or node.by_handle or not isinstance(node.value, str):
            return None
        return self.roles.read_name(node.value, inside=True) if len(node.value) <= _NAME_CHARS else None

    def _is_judged_key(self, field: _Field) -> bool:
        """Whether a key of an object says whom something acts on, as in {"bob@blue.org": "owner"}."""
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
    def may_name(self) -> bool:
        """Whether its text may be the name of its neighbour: not that of a target, an `id` or a `key` aside."""
        return self.role not in _GUARDED or str(self.key.value).lower() in _NAMING_TARGETS


_GUARDED = (ArgumentRole.SECRET, ArgumentRole.TARGET)
_STRICTEST = (*_GUARDED, ArgumentRole.QUANTITY, ArgumentRole.CONTENT)
_NAMING_TARGETS = ("key", "id")
_WEAK_CONTENT = ("text", "rich_text", "content", "title", "first", "query", "plain_text", "string")
"""Names inside objects that hold whatever is around them: `{"recipient": {"text": ...}}`."""
_NAMING_FIELDS = ("name", "key", "id", "field", "header", "label")
_NAME_WORDS = 3
"""Most words of a text that names its neighbour: "Please reply to Bob" names nothing."""
_NAME_CHARS = 60
"""Longest text that is read as a name."""


def _is_short(node: ResolvedNode) -> bool:
    return isinstance(node, ResolvedLeaf) and len(str(node.value).split()) <= _NAME_WORDS


def _find_strictest(found: Iterable[ArgumentRole | None]) -> ArgumentRole | None:
    return min((role for role in found if role is not None), key=_STRICTEST.index, default=None)
