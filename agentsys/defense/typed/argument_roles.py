"""`ArgumentRoles`: what each argument of a tool is for, by a table and by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

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
    """The shape of a file of roles."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by_name: Mapping[ArgumentRole, str] = {}
    paging: tuple[str, ...] = ()
    egress: tuple[str, ...] = ()
    tools: Mapping[str, Mapping[str, ArgumentRole]] = {}


_SHIPPED = Path(__file__).with_name("argument_roles.yaml")


@dataclass(frozen=True)
class ArgumentRoles:
    """The roles of all tools' arguments.

    Args:
        unknown: The role of an argument that neither a table nor a list of names knows.
    """

    by_word: Mapping[str, ArgumentRole]
    paging: frozenset[str]
    egress: frozenset[str]
    tools: Mapping[str, Mapping[str, ArgumentRole]] = field(default_factory=dict)
    unknown: ArgumentRole = ArgumentRole.CONTENT

    def find_role(self, tool: str, argument: str) -> ArgumentRole:
        """The role of a tool's argument."""
        given = self.tools.get(tool, {}).get(argument)
        if given is not None:
            return given
        words = reversed(split_name(argument))
        return next((self.by_word[word] for word in words if word in self.by_word), self.unknown)

    def selects(self, argument: str) -> bool:
        """Whether an argument of a reading call says which things are wanted, and not how many or in what order."""
        return argument not in self.paging


def split_name(name: str) -> list[str]:
    """The words of a name in snake_case or camelCase."""
    return [piece.lower() for piece in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


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
    where = f"defense.roles_file {path}"
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _RolesFile.model_validate(data or {})
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}. Give a YAML in UTF-8, or null.") from None
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f" in line {mark.line + 1}"
        raise ConfigError(f"{where} is no YAML{line}; write tools: {{TOOL: {{ARGUMENT: target}}}}.") from None
    except ValidationError as error:
        place = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(
            f"{where}: {place or 'it'} is not understood; write tools: {{TOOL: {{ARGUMENT: target}}}} with the roles"
            " target, quantity, secret, content, and egress: [TOOL]."
        ) from None
