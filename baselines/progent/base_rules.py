"""The rules a suite brings: its data file in `base_rules/`, or a least set told from its tools' names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from agentsys.models.chat import ToolSpec
from agentsys.models.tools import named_like_reading

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class BaseRules:
    """Tools that may be called whatever the request is, with any arguments."""

    tools: tuple[str, ...]
    source: str
    """`base_rules/NAME.yaml`, or `generated` where a suite has no file."""


def base_rules(suite: str, tools: Sequence[ToolSpec]) -> BaseRules:
    """The rules of a suite; a file of its name counts if it names a tool that is on offer."""
    offered = {tool.name for tool in tools}
    listed = tuple(name for name in _listed(suite) if name in offered)
    if listed:
        return BaseRules(listed, f"base_rules/{suite}.yaml")
    least = tuple(tool.name for tool in tools if reads_without_being_told_what(tool))
    _say_once(suite, least)
    return BaseRules(least, "generated")


def reads_without_being_told_what(tool: ToolSpec) -> bool:
    """Whether a tool's name says that it reads, and no argument has to be given: nothing can leak by it."""
    return named_like_reading(tool.name) and not tool.parameters.get("required")


@cache
def _listed(suite: str) -> tuple[str, ...]:
    folder = files("baselines.progent") / "base_rules"
    found = next((file for file in folder.iterdir() if file.name == f"{suite}.yaml"), None)
    return () if found is None else tuple(yaml.safe_load(found.read_text(encoding="utf-8")))


@cache
def _say_once(suite: str, least: tuple[str, ...]) -> None:
    named = ", ".join(least) or "none"
    _LOGGER.warning(
        "Progent has no base rules for the suite %s; generated from its tools' names: %s.", suite, named
    )
