"""`ArgumentRoles`: what each argument of a tool is for, by a table and by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.defense.agentsys_settings import read_operators_file
from agentsys.errors import ConfigError


class ArgumentRole(Enum):
    """What an argument says."""

    TARGET = "target"
    """Whom or what a call acts on: a recipient, an account, an address, an id."""
    QUANTITY = "quantity"
    """How much, how often, when."""
    SECRET = "secret"
    CONTENT = "content"
    """What is written, sent or shown."""


class _RolesFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    by_name: Mapping[ArgumentRole, str] = {}
    paging: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    tools: Mapping[str, Mapping[str, ArgumentRole]] = {}


_SHIPPED = Path(__file__).with_name("argument_roles.yaml")


@dataclass(frozen=True)
class ArgumentRoles:
    """The roles of all tools' arguments; `unknown` is that of one that neither a table nor a list of names knows."""

    by_word: Mapping[str, ArgumentRole]
    paging: frozenset[str]
    """Arguments of reading calls that say how many things are wanted or in what order, and not which."""
    egress: frozenset[str]
    tools: Mapping[str, Mapping[str, ArgumentRole]]
    unknown: ArgumentRole

    def find_role(self, tool: str, argument: str) -> ArgumentRole:
        """The role of a tool's argument."""
        given = self.tools.get(tool, {}).get(argument)
        if given is not None:
            return given
        # Names are in snake_case or camelCase.
        words = [piece.lower() for piece in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", argument)]
        return next((self.by_word[word] for word in reversed(words) if word in self.by_word), self.unknown)


@cache
def load_argument_roles(own: Path | None = None, *, strict: bool = False) -> ArgumentRoles:
    """The shipped roles, and those of an engineer's file, which go before them.

    Args:
        own: A YAML with `tools` (tool -> argument -> role) and `egress` (tools that send what they are given away).
        strict: Whether an argument that no list knows counts as a target.

    Raises:
        ConfigError: If the file cannot be read or says anything else.
    """
    shipped, ours = _read_roles(_SHIPPED), _RolesFile() if own is None else _read_roles(own)
    by_name = {**shipped.by_name, **ours.by_name}
    return ArgumentRoles(
        {word: role for role, words in by_name.items() for word in words.split()},
        frozenset(shipped.paging + ours.paging),
        frozenset(shipped.egress + ours.egress),
        {
            tool: {**shipped.tools.get(tool, {}), **ours.tools.get(tool, {})}
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
