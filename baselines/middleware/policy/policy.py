"""`Policy`: what is allowed, as data. Everything that it does not allow is denied."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentsys.errors import ConfigError, unknown_name

POLICY_FOLDER = Path(__file__).parent / "suites"


class _PolicyPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class UrlRule(_PolicyPart):
    """Every text inside an argument is a URL."""

    domains: tuple[str, ...] | None = None
    """Allowed hosts; `*.site.example` for all below one; null: any public one."""


class PathRule(_PolicyPart):
    """Every text inside an argument is a path."""

    root: str = "."
    """The folder it must stay below."""
    shell: bool = False
    """Whether the tool hands it to a shell."""


class ArgumentRule(_PolicyPart):
    """What one argument may be."""

    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")
    """JSON schema (draft 2020-12), formats checked."""
    url: UrlRule | None = None
    path: PathRule | None = None


class PolicyRole(_PolicyPart):
    """Tools that go together, each with the arguments it may be given."""

    extends: tuple[str, ...] = ()
    """Roles whose tools it has as well; its own rule for a tool replaces theirs."""
    tools: dict[str, dict[str, ArgumentRule]] = Field(default_factory=dict)
    """Tool -> argument -> rule. An argument that is not listed may not be given."""


class ToolPolicy(_PolicyPart):
    """One policy file."""

    description: str
    default_role: str
    roles: dict[str, PolicyRole]

    @model_validator(mode="after")
    def _known_roles(self) -> ToolPolicy:
        for name in [self.default_role, *(one for role in self.roles.values() for one in role.extends)]:
            if name not in self.roles:
                raise ValueError(f"there is no role '{name}'")
        return self

    def tools_of(self, role: str | None = None) -> Mapping[str, Mapping[str, ArgumentRule]]:
        """What a role allows: tool -> argument -> rule; None: what the policy's default one does.

        Raises:
            ConfigError: If there is no such role, or roles extend each other in a circle.
        """
        name = role or self.default_role
        if name not in self.roles:
            raise ConfigError(unknown_name("role of the policy", name, self.roles))
        return self._collect_tools(name, ())

    def _collect_tools(self, name: str, path: tuple[str, ...]) -> dict[str, dict[str, ArgumentRule]]:
        if name in path:
            raise ConfigError(f"Policy: roles extend each other: {' -> '.join([*path, name])}.")
        found: dict[str, dict[str, ArgumentRule]] = {}
        for other in self.roles[name].extends:
            found |= self._collect_tools(other, (*path, name))
        return found | self.roles[name].tools


def list_shipped_policies() -> list[str]:
    """Names of the suites that a policy is shipped for."""
    return sorted(path.stem for path in POLICY_FOLDER.glob("*.yaml"))


@lru_cache(maxsize=64)
def load_tool_policy(name: str) -> ToolPolicy:
    """A policy by the name of its suite, or by the path of a file.

    Raises:
        ConfigError: If there is no such policy, or the file is none.
    """
    path = POLICY_FOLDER / f"{name}.yaml" if name in list_shipped_policies() else Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(unknown_name("policy", name, list_shipped_policies()) + " Or give a YAML file.")
    try:
        return ToolPolicy.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"Policy {path}: {_first_error(error)}.") from None


def _first_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        one = error.errors()[0]
        return f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg'].rstrip('.')}"
    return " ".join(str(error).split()).rstrip(".")
