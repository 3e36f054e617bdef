"""`SuiteRules`: what others can write in a suite, who may read it, and what must hold before a call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from agentsys.models.pipeline_elements import has_reading_name
from baselines.flow.groups import channel_members
from baselines.flow.label import FlowLabel, TrustSource, label_from_tool
from baselines.flow.label_table import LabelTable, SuiteData, load_packaged_file

FidesRuleKind = Literal["p1", "p_star", "p_double_star"]
ReaderRule = Literal["everyone", "user", "workspace", "channel"] | tuple[str, ...]
"""Who may read: everyone, the user, everybody in Slack, a message's channel or two; or fields with names."""


class ExposedFields(SuiteData):
    """What an injection of the benchmark can be written to."""

    tools: tuple[str, ...] = ()
    """Tools all of whose result it is."""
    classes: Mapping[str, tuple[str, ...]] = {}
    """Class of an object -> fields."""


class ResultReaders(SuiteData):
    """Who may read results."""

    default: ReaderRule = "user"
    classes: Mapping[str, ReaderRule] = {}
    tools: Mapping[str, ReaderRule] = {}


class FidesCallPolicy(SuiteData):
    """What must hold before a tool runs."""

    rule: FidesRuleKind
    readers_are: tuple[str, ...] = ()
    """Arguments that name whom the others reach."""
    readers_are_sharers_of: str | None = None
    """The argument that names a file."""
    readers_are_members_of: str | None = None
    """The argument that names a channel."""


class FidesRules(SuiteData):
    """The file of one suite."""

    exposed: ExposedFields = ExposedFields()
    readers: ResultReaders = ResultReaders()
    policies: Mapping[str, FidesCallPolicy] = {}
    free: tuple[str, ...] = ()
    """Tools that may always be called."""
    generated: bool = False
    """Whether there is no file: everything is untrusted, and names of tools decide which are free."""


@lru_cache(maxsize=64)
def load_written_rules(suite: str) -> FidesRules | None:
    """The rules of a suite, or None if there is no file of its name."""
    return load_packaged_file(f"{suite}.yaml", FidesRules, "baselines.fides", "tables")


def generate_rules(tools: Iterable[str]) -> FidesRules:
    """Rules for any tools: everything is untrusted and the user's, and what changes something needs P1."""
    names = list(tools)
    free = tuple(name for name in names if has_reading_name(name, "query"))
    policies = {name: FidesCallPolicy(rule="p1") for name in names if name not in free}
    return FidesRules(exposed=ExposedFields(tools=tuple(names)), policies=policies, free=free, generated=True)


@dataclass(frozen=True)
class ResultLabels:
    """Labels of the fields of a case's results."""

    rules: FidesRules
    table: LabelTable
    """Labels by who wrote an object, for `strict`; and who the user is."""
    environment: Any
    strict: bool = False

    def label_field(self, tool: str, record: Any, field: str | None) -> FlowLabel:
        """The label of a field of a record, or of a result or item that is no record.

        Args:
            tool: Which tool returned it.
            record: The object or dict with the field; else the result itself.
            field: The field's name; None where there is none.
        """
        trusted = self._is_trusted(tool, record, field)
        return label_from_tool(tool, (TrustSource.TRUSTED_TOOL,) if trusted else (), self._find_readers(tool, record))

    def label_error(self, tool: str) -> FlowLabel:
        """The label of a tool's error text: it may hold anything the tool has looked at."""
        trusted = not self.strict and tool not in self.rules.exposed.tools and tool not in self.rules.free
        return label_from_tool(tool, (TrustSource.TRUSTED_TOOL,) if trusted else (), self.table.own)

    def _is_trusted(self, tool: str, record: Any, field: str | None) -> bool:
        exposed = self.rules.exposed
        if tool in exposed.tools or field in exposed.classes.get(type(record).__name__, ()):
            return False
        return not self.strict or self.table.result_label(tool, record).is_trusted

    def _find_readers(self, tool: str, record: Any) -> Iterable[str] | None:
        readers = self.rules.readers
        rule = readers.tools.get(tool) or readers.classes.get(type(record).__name__) or readers.default
        if rule == "everyone":
            return None
        if rule == "user":
            return self.table.own
        if rule == "workspace":
            return list(self.environment.slack.users)
        if rule == "channel":
            return self._message_readers(record)
        return [str(name) for path in rule for name in _as_items(getattr(record, path, None))]

    def _message_readers(self, message: Any) -> Iterable[str]:
        """The members of a message's channel; of a direct message its two."""
        if message.recipient in self.environment.slack.channels:
            return channel_members(self.environment, message.recipient)
        return [message.sender, message.recipient]


def _as_items(value: Any) -> Iterable[Any]:
    return () if value is None else value if isinstance(value, list | tuple | set | Mapping) else (value,)
