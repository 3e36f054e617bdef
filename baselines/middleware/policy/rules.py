"""Judges one call by a policy: the tool, each argument's schema, URLs and paths, and what its texts say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from baselines.middleware.extra import load_optional
from baselines.middleware.policy.paths import find_path_fault
from baselines.middleware.policy.policy import ArgumentRule
from baselines.middleware.policy.urls import find_url_fault
from baselines.middleware.risk.finding import RiskFinding
from baselines.middleware.risk.reading import find_sightings

LAYER = "policy"
CERTAIN = 1.0
"""Weight of a broken rule: nobody allowed the call."""
_IN_ARGUMENTS = 0.5
"""Share of a pattern's weight inside an argument: users have agents write about instructions, too."""


def find_violations(
    tool: str, args: Mapping[str, Any], tools: Mapping[str, Mapping[str, ArgumentRule]] | None
) -> list[RiskFinding]:
    """What speaks against a call, rules that it breaks first.

    Args:
        tool: Its name.
        args: Its arguments, JSON-like.
        tools: What is allowed (`Policy.tools_of`); None: there is no policy, and only the texts are looked
            at.
    """
    if tools is not None and tool not in tools:
        return [_broken_rule_finding("tool", f"{tool} is not allowed")]
    found: list[RiskFinding] = []
    rules = {} if tools is None else tools[tool]
    for name, value in args.items() if tools is not None else ():
        rule = rules.get(name)
        found += (
            [_broken_rule_finding("argument", f"{name} is not allowed")]
            if rule is None
            else _check_argument(name, value, rule)
        )
    return found + [
        RiskFinding(
            LAYER, seen.hit.pattern.id, seen.hit.pattern.category, seen.weight * _IN_ARGUMENTS, seen.excerpt
        )
        for text in iterate_argument_texts(args)
        for seen in find_sightings(text)
    ]


def _check_argument(name: str, value: Any, rule: ArgumentRule) -> Iterator[RiskFinding]:
    if rule.schema_:
        error = next(_build_validator(orjson.dumps(rule.schema_)).iter_errors(value), None)
        if error is not None:
            yield _broken_rule_finding("schema", f"{name}: {error.message}")
    for text in iterate_argument_texts(value):
        if rule.url is not None and (fault := find_url_fault(text, rule.url.domains)) is not None:
            yield _broken_rule_finding(f"url_{fault.kind}", f"{name}: {fault.reason}: {text}")
        if (
            rule.path is not None
            and (why := find_path_fault(text, rule.path.root, shell=rule.path.shell)) is not None
        ):
            yield _broken_rule_finding("path", f"{name}: {why}: {text}")


@lru_cache(maxsize=512)
def _build_validator(schema: bytes) -> Any:
    package = load_optional("jsonschema")
    kind = package.Draft202012Validator
    return kind(orjson.loads(schema), format_checker=kind.FORMAT_CHECKER)


def iterate_argument_texts(value: Any) -> Iterator[str]:
    """Every text inside an argument, or inside all of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from iterate_argument_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from iterate_argument_texts(item)


def _broken_rule_finding(kind: str, what: str) -> RiskFinding:
    return RiskFinding(LAYER, kind, "execution" if kind.startswith("url") else "exfiltration", CERTAIN, what)
