"""`SuiteRules`: what others can write in a suite, who may read it, and what must hold before a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from agentsys.models.pipeline_elements import has_reading_name
from baselines.flow.groups import channel_members
from baselines.flow.label import FlowLabel, Source, from_tool
from baselines.flow.label_table import LabelTable, SuiteData, packaged

Rule = Literal["p1", "p_star", "p_double_star"]
ReaderRule = Literal["everyone", "user", "workspace", "channel"] | tuple[str, ...]
"""Who may read: everyone, the user, everybody in Slack, a message's channel or two; or fields with names."""


class Exposed(SuiteData):
    """What an injection of the benchmark can be written to."""

    tools: tuple[str, ...] = ()
    """Tools all of whose result it is."""
    classes: Mapping[str, tuple[str, ...]] = {}
    """Class of an object -> fields."""


class Readers(SuiteData):
    """Who may read results."""

    default: ReaderRule = "user"
    classes: Mapping[str, ReaderRule] = {}
    tools: Mapping[str, ReaderRule] = {}


class CallPolicy(SuiteData):
    """What must hold before a tool runs."""

    rule: Rule
    readers_are: tuple[str, ...] = ()
    """Arguments that name whom the others reach."""
    readers_are_sharers_of: str | None = None
    """The argument that names a file."""
    readers_are_members_of: str | None = None
    """The argument that names a channel."""


class SuiteRules(SuiteData):
    """The file of one suite."""

    exposed: Exposed = Exposed()
    readers: Readers = Readers()
    policies: Mapping[str, CallPolicy] = {}
    free: tuple[str, ...] = ()
    """Tools that may always be called."""
    generated: bool = False
    """Whether there is no file: everything is untrusted, and names of tools decide which are free."""


@lru_cache(maxsize=64)
def written_rules(suite: str) -> SuiteRules | None:
    """The rules of a suite, or None if there is no file of its name."""
    return packaged(f"{suite}.yaml", SuiteRules, "baselines.fides", "tables")


def generated_rules(tools: Iterable[str]) -> SuiteRules:
    """Rules for any tools: everything is untrusted and the user's, and what changes something needs P1."""
    names = list(tools)
    free = tuple(name for name in names if has_reading_name(name, "query"))
    policies = {name: CallPolicy(rule="p1") for name in names if name not in free}
    return SuiteRules(exposed=Exposed(tools=tuple(names)), policies=policies, free=free, generated=True)


@dataclass(frozen=True)
class ResultLabels:
    """Labels of the fields of a case's results."""

    rules: SuiteRules
    table: LabelTable
    """Labels by who wrote an object, for `strict`; and who the user is."""
    environment: Any
    strict: bool = False

    def of_field(self, tool: str, record: Any, field: str | None) -> FlowLabel:
        """The label of a field of a record, or of a result or item that is no record.

        Args:
            tool: Which tool returned it.
            record: The object or dict with the field; else the result itself.
            field: The field's name; None where there is none.
        """
        trusted = self._trusted(tool, record, field)
        return from_tool(tool, (Source.TRUSTED_TOOL,) if trusted else (), self._readers(tool, record))

    def of_error(self, tool: str) -> FlowLabel:
        """The label of a tool's error text: it may hold anything the tool has looked at."""
        trusted = not self.strict and tool not in self.rules.exposed.tools and tool not in self.rules.free
        return from_tool(tool, (Source.TRUSTED_TOOL,) if trusted else (), self.table.own)

    def _trusted(self, tool: str, record: Any, field: str | None) -> bool:
        exposed = self.rules.exposed
        if tool in exposed.tools or field in exposed.classes.get(type(record).__name__, ()):
            return False
        return not self.strict or self.table.label(tool, record).trusted

    def _readers(self, tool: str, record: Any) -> Iterable[str] | None:
        readers = self.rules.readers
        rule = readers.tools.get(tool) or readers.classes.get(type(record).__name__) or readers.default
        if rule == "everyone":
            return None
        if rule == "user":
            return self.table.own
        if rule == "workspace":
            return list(self.environment.slack.users)
        if rule == "channel":
            return self._of_message(record)
        return [str(name) for path in rule for name in _held(getattr(record, path, None))]

    def _of_message(self, message: Any) -> Iterable[str]:
        """The members of a message's channel; of a direct message its two."""
        if message.recipient in self.environment.slack.channels:
            return channel_members(self.environment, message.recipient)
        return [message.sender, message.recipient]


def _held(value: Any) -> Iterable[Any]:
    return () if value is None else value if isinstance(value, list | tuple | set | Mapping) else (value,)
