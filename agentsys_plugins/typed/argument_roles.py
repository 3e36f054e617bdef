"""`ArgumentRoles`: what each argument of a tool is for, by a table and by its name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.defense.agentsys_settings import read_operators_file
from agentsys.errors import ConfigError


class ArgumentRole(Enum):
    """Role of an argument."""

    TARGET = "target"
    """Whom or what a call acts on: a recipient, an account, an address, an id."""
    QUANTITY = "quantity"
    """How much, how often, when."""
    SECRET = "secret"
    CONTENT = "content"
    """What is written, sent or shown."""


class _WordsInObjects(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str = ""
    quantity: str = ""
    content: str = ""
    unnamed: str = ""
    holder: str = ""


class _RolesFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    by_name: Mapping[ArgumentRole, str] = {}
    in_objects: _WordsInObjects = _WordsInObjects()
    paging: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    tools: Mapping[str, Mapping[str, ArgumentRole]] = {}


_SHIPPED = Path(__file__).with_name("argument_roles.yaml")


@dataclass(frozen=True)
class ArgumentRoles:
    """The roles of all tools' arguments; `unknown` is that of one that neither a table nor a list of names knows."""

    by_word: Mapping[str, ArgumentRole]
    in_objects: Mapping[str, ArgumentRole]
    """Words that say something else inside an object."""
    unnamed: frozenset[str]
    """Words that say nothing inside an object: `value`."""
    holders: frozenset[str]
    """Words of targets that have content: what an object of that name says under a word of content is that."""
    paging: frozenset[str]
    """Arguments of reading calls that say how many things are wanted or in what order, and not which."""
    egress: frozenset[str]
    tools: Mapping[str, Mapping[str, ArgumentRole]]
    """Tool -> path -> role; a path is an argument's name, or names with points between (`message.to`)."""
    unknown: ArgumentRole

    def find_role(self, tool: str, argument: str) -> ArgumentRole:
        """The role of a tool's argument."""
        return self.find_known_role(tool, argument) or self.unknown

    def find_known_role(self, tool: str, argument: str) -> ArgumentRole | None:
        """The role of an argument that a table or a list of names knows."""
        return self.tools.get(tool, {}).get(argument) or self.read_name(argument)

    def read_name(self, name: str, *, inside: bool = False) -> ArgumentRole | None:
        """The role that a name says; `inside`: within an object. The last word that is listed decides."""
        for word in reversed(_split_name(name)):
            if inside and word in self.unnamed:
                continue
            role = (self.in_objects.get(word) if inside else None) or self.by_word.get(word)
            if role is not None:
                return role
        return None

    def is_holder(self, path: str) -> bool:
        """True if the nearest target that a path names is something that has content: `message.files`."""
        targets = (
            word for word in reversed(_split_name(path)) if self.by_word.get(word) is ArgumentRole.TARGET
        )
        return next(targets, None) in self.holders

    def is_unnamed(self, name: str) -> bool:
        """True if a name inside an object says nothing of what stands under it."""
        return self.read_name(name, inside=True) is None and not self.unnamed.isdisjoint(_split_name(name))


def _split_name(name: str) -> list[str]:
    """The words of a name in snake_case or camelCase."""
    return [
        piece.lower() for piece in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name[:_MAX_NAME_CHARS])
    ]


def _list_words(words: str) -> Iterator[str]:
    """Listed words, each with its plural."""
    for word in words.split():
        yield from (word, re.sub("(?<=[^aeiou])y$", "ie", word) + "s")


_MAX_NAME_CHARS = 200


@cache
def load_argument_roles(own: Path | None = None, *, strict: bool = False) -> ArgumentRoles:
    """The shipped roles, and those of an engineer's file, which go before them.

    Args:
        own: A YAML with `tools` (tool -> argument, or path such as `message.to` -> role) and `egress` (tools that
            send what they are given away).
        strict: Whether an argument that no list knows counts as a target.

    Raises:
        ConfigError: If the file cannot be read or says anything else.
    """
    shipped, ours = _read_roles(_SHIPPED), _RolesFile() if own is None else _read_roles(own)
    by_name, inside = {**shipped.by_name, **ours.by_name}, shipped.in_objects
    roles = (ArgumentRole.TARGET, ArgumentRole.QUANTITY, ArgumentRole.CONTENT)
    return ArgumentRoles(
        {word: role for role, words in by_name.items() for word in _list_words(words)},
        {word: role for role in roles for word in _list_words(getattr(inside, role.value))},
        frozenset(_list_words(inside.unnamed)),
        frozenset(_list_words(inside.holder)),
        frozenset(shipped.paging + ours.paging),
        frozenset(shipped.egress + ours.egress),
        {
            tool: {
                # `fields[].value` is `fields.value`: what a path leads through is seen in the arguments.
                path.replace("[]", ""): role
                for path, role in {**shipped.tools.get(tool, {}), **ours.tools.get(tool, {})}.items()
            }
            for tool in {*shipped.tools, *ours.tools}
        },
        ArgumentRole.TARGET if strict else ArgumentRole.CONTENT,
    )


def _read_roles(path: Path) -> _RolesFile:
    try:
        data = read_operators_file(path, "roles_file", "tools: {TOOL: {ARGUMENT: target}}")
        return _RolesFile.model_validate(data or {})
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"defense.roles_file {path}: {place or 'it'} is not understood; write tools:"
            " {TOOL: {ARGUMENT: target}} with the roles target, quantity, secret, content, and egress: [TOOL]."
        ) from None
