"""`ToolPolicy`: which tools may be called with which arguments, read from a file or proposed from schemas.

`find_violations` says what speaks against one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ToolSpec
from agentsys.models.pipeline_elements import has_reading_name
from agentsys_plugins.vectors.middleware.guard_settings import RiskFinding, load_optional
from agentsys_plugins.vectors.middleware.risk_patterns import find_sightings
from agentsys_plugins.vectors.middleware.url_path_checks import find_path_fault, find_url_fault

POLICY_FOLDER = Path(__file__).parent / "suites"


class _PolicyPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class UrlRule(_PolicyPart):
    """Requires every string inside an argument to be an allowed URL."""

    domains: tuple[str, ...] | None = None
    """Allowed hosts; `*.site.example` for all below one; null: any public one."""


class PathRule(_PolicyPart):
    """Requires every string inside an argument to be an allowed path."""

    root: str = "."
    """The folder it must stay below."""
    shell: bool = False
    """True if the tool passes the path to a shell."""


class ArgumentRule(_PolicyPart):
    """The allowed values of one argument."""

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
        for name in [self.default_role, *(parent for role in self.roles.values() for parent in role.extends)]:
            if name not in self.roles:
                raise ValueError(f"there is no role '{name}'")
        return self

    def tools_of(self, role: str | None = None) -> Mapping[str, Mapping[str, ArgumentRule]]:
        """Return a role's allowed calls: tool -> argument -> rule; None: the policy's default role."""
        name = role or self.default_role
        if name not in self.roles:
            raise ConfigError(unknown_name("role of the policy", name, self.roles))
        return self._collect_tools(name, ())

    def _collect_tools(self, name: str, path: tuple[str, ...]) -> dict[str, dict[str, ArgumentRule]]:
        if name in path:
            raise ConfigError(f"Policy: roles extend each other: {' -> '.join([*path, name])}.")
        rules: dict[str, dict[str, ArgumentRule]] = {}
        for other in self.roles[name].extends:
            rules |= self._collect_tools(other, (*path, name))
        return rules | self.roles[name].tools


def list_shipped_policies() -> list[str]:
    """Names of the suites that a policy is shipped for."""
    return sorted(path.stem for path in POLICY_FOLDER.glob("*.yaml"))


@lru_cache(maxsize=64)
def load_tool_policy(name: str) -> ToolPolicy:
    """Load a policy by the name of its suite, or by the path of a file.

    Raises:
        ConfigError: If there is no such policy, or the file is none.
    """
    path = POLICY_FOLDER / f"{name}.yaml" if name in list_shipped_policies() else Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(unknown_name("policy", name, list_shipped_policies()) + " Or give a YAML file.")
    try:
        return ToolPolicy.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"Policy {path}: {_format_first_error(error)}.") from None


def _format_first_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        fault = error.errors()[0]
        return f"{'.'.join(map(str, fault['loc'])) or 'file'}: {fault['msg'].rstrip('.')}"
    return " ".join(str(error).split()).rstrip(".")


READER = "reader"
ACTOR = "actor"
_URL_NAMES = ("url", "link", "website", "uri")
_PATH_NAMES = ("path", "file_path", "filepath", "folder", "directory")
_KEPT_KEYWORDS = (
    "type", "items", "enum", "format", "pattern", "minimum", "maximum", "properties", "required", "anyOf",
    "additionalProperties", "$defs", "$ref",
)  # fmt: skip


def propose_policy(tools: Iterable[ToolSpec]) -> ToolPolicy:
    """Propose a policy of every tool with all its arguments: readers (by name) in one role, others in another."""
    by_role: dict[str, dict[str, dict[str, ArgumentRule]]] = {READER: {}, ACTOR: {}}
    for spec in tools:
        definitions = spec.parameters.get("$defs")
        by_role[READER if has_reading_name(spec.name) else ACTOR][spec.name] = {
            name: _propose_rule(name, schema, definitions) for name, schema in spec.arguments.items()
        }
    return ToolPolicy(
        description="Proposed from a toolset. Cut it down to what is needed.",
        default_role=ACTOR,
        roles={
            READER: PolicyRole(tools=by_role[READER]),
            ACTOR: PolicyRole(extends=(READER,), tools=by_role[ACTOR]),
        },
    )


def _propose_rule(name: str, schema: Mapping[str, Any], definitions: object) -> ArgumentRule:
    kept = {key: value for key, value in schema.items() if key in _KEPT_KEYWORDS}
    if definitions and "$ref" in str(kept):
        kept["$defs"] = definitions
    words = name.casefold()
    is_url = words in _URL_NAMES or words.endswith(("_url", "_link"))
    is_path = words in _PATH_NAMES or words.endswith(("_path", "_folder"))
    return ArgumentRule(schema=kept, url=UrlRule() if is_url else None, path=PathRule() if is_path else None)


LAYER = "policy"
CERTAIN = 1.0
"""Weight of a broken rule: the call is not allowed."""
_IN_ARGUMENTS = 0.5
"""Share of a pattern's weight inside an argument: users have agents write about instructions, too."""


def find_violations(
    tool: str, args: Mapping[str, Any], tools: Mapping[str, Mapping[str, ArgumentRule]] | None
) -> list[RiskFinding]:
    """Return the findings against a call, broken rules first; without `tools`, only its texts are checked."""
    if tools is not None and tool not in tools:
        return [_make_broken_rule_finding("tool", f"{tool} is not allowed")]
    findings: list[RiskFinding] = []
    for name, value in args.items() if tools is not None else ():
        rule = None if tools is None else tools[tool].get(name)
        if rule is None:
            findings.append(_make_broken_rule_finding("argument", f"{name} is not allowed"))
        else:
            findings += _check_argument(name, value, rule)
    sightings = (seen for text in iterate_texts(args) for seen in find_sightings(text))
    return findings + [seen.as_finding(LAYER, _IN_ARGUMENTS) for seen in sightings]


def _check_argument(name: str, value: Any, rule: ArgumentRule) -> Iterator[RiskFinding]:
    if rule.schema_:
        error = next(_build_validator(orjson.dumps(rule.schema_)).iter_errors(value), None)
        if error is not None:
            yield _make_broken_rule_finding("schema", f"{name}: {error.message}")
    for text in iterate_texts(value):
        if rule.url is not None and (fault := find_url_fault(text, rule.url.domains)) is not None:
            yield _make_broken_rule_finding(f"url_{fault.kind}", f"{name}: {fault.reason}: {text}")
        path = rule.path
        if path is not None and (why := find_path_fault(text, path.root, shell=path.shell)) is not None:
            yield _make_broken_rule_finding("path", f"{name}: {why}: {text}")


@lru_cache(maxsize=512)
def _build_validator(schema: bytes) -> Any:
    package = load_optional("jsonschema")
    kind = package.Draft202012Validator
    return kind(orjson.loads(schema), format_checker=kind.FORMAT_CHECKER)


def iterate_texts(value: Any) -> Iterator[str]:
    """Yield every string inside a value, except the keys of mappings."""
    if isinstance(value, str):
        yield value
        return
    value = vars(value) if isinstance(value, BaseModel) else value
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from iterate_texts(item)


def _make_broken_rule_finding(kind: str, what: str) -> RiskFinding:
    return RiskFinding(LAYER, kind, "execution" if kind.startswith("url") else "exfiltration", CERTAIN, what)
