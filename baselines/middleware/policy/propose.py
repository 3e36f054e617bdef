"""Proposes a policy from a toolset and its labels: a first draft for a person to cut down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from agentsys.models.chat import ToolSpec
from agentsys.models.pipeline_elements import has_reading_name
from baselines.middleware.policy.policy import ArgumentRule, PathRule, ToolPolicy, PolicyRole, UrlRule

READER = "reader"
ACTOR = "actor"
_URL_NAMES = ("url", "link", "website", "uri")
_PATH_NAMES = ("path", "file_path", "filepath", "folder", "directory")
_KEPT_KEYWORDS = (
    "type", "items", "enum", "format", "pattern", "minimum", "maximum", "properties", "required", "anyOf",
    "additionalProperties", "$defs", "$ref",
)  # fmt: skip


def propose_policy(tools: Iterable[ToolSpec], labels: Mapping[str, str] | None = None) -> ToolPolicy:
    """Every tool with every argument of its own schema: readers in one role, the rest in another.

    Args:
        tools: The tools on offer.
        labels: Tool -> `query` or `command`; None: by the first word of the name.
    """
    specs = list(tools)
    queries = {spec.name for spec in specs if _find_label(spec.name, labels) == "query"}
    reader = PolicyRole(tools={spec.name: propose_arguments(spec) for spec in specs if spec.name in queries})
    actor = PolicyRole(
        extends=(READER,), tools={spec.name: propose_arguments(spec) for spec in specs if spec.name not in queries}
    )
    return ToolPolicy(
        description="Proposed from a toolset. Cut it down to what is needed.",
        default_role=ACTOR,
        roles={READER: reader, ACTOR: actor},
    )


def propose_arguments(spec: ToolSpec) -> dict[str, ArgumentRule]:
    """The rules of a tool's arguments, from its JSON schema and their names."""
    properties = spec.parameters.get("properties", {})
    definitions = spec.parameters.get("$defs")
    return {name: _propose_rule(name, schema, definitions) for name, schema in properties.items()}


def policy_as_yaml(policy: ToolPolicy) -> str:
    """A policy as the text of its file."""
    data = policy.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=108)


def _find_label(name: str, labels: Mapping[str, str] | None) -> str:
    if labels is not None:
        return labels.get(name, "command")
    return "query" if has_reading_name(name) else "command"


def _propose_rule(name: str, schema: Mapping[str, Any], definitions: object) -> ArgumentRule:
    kept = {key: value for key, value in schema.items() if key in _KEPT_KEYWORDS}
    if definitions and "$ref" in str(kept):
        kept["$defs"] = definitions
    words = name.casefold()
    is_url = words in _URL_NAMES or words.endswith(("_url", "_link"))
    is_path = words in _PATH_NAMES or words.endswith(("_path", "_folder"))
    return ArgumentRule(schema=kept, url=UrlRule() if is_url else None, path=PathRule() if is_path else None)
