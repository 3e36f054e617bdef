"""`FidesRules`: a suite's labels and policies, read from data, and the verdict on one call.

`ResultLabels` label the fields of results; `judge_call` says whether a call may run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from agentsys.models.pipeline_elements import has_reading_name
from baselines.flow.labelled_values import (
    FlowLabel,
    LabelTable,
    SuiteData,
    TrustSource,
    label_from_tool,
    list_channel_members,
    list_file_sharers,
    load_packaged_file,
    read_identities,
)

FidesRuleKind = Literal["p1", "p_star", "p_double_star"]
ReaderRule = Literal["everyone", "user", "workspace", "channel"] | tuple[str, ...]
"""The readers: everyone, the user, everybody in Slack, a message's channel or two; or fields with names."""


class ExposedFields(SuiteData):
    """The fields that an injection of the benchmark can be written to."""

    tools: tuple[str, ...] = ()
    """Tools all of whose result it is."""
    classes: Mapping[str, tuple[str, ...]] = {}
    """Class of an object -> fields."""


class ResultReaders(SuiteData):
    """The readers of results."""

    default: ReaderRule = "user"
    classes: Mapping[str, ReaderRule] = {}
    tools: Mapping[str, ReaderRule] = {}


class FidesCallPolicy(SuiteData):
    """The conditions under which a tool may run."""

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
    """True if the suite has no file: everything is untrusted, and tools' names decide which are free."""


@lru_cache(maxsize=64)
def load_written_rules(suite: str) -> FidesRules | None:
    """Load the rules of a suite; None if it has no file."""
    return load_packaged_file(f"{suite}.yaml", FidesRules, "agentsys_plugins.rivals.fides", "tables")


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
        """Label a field of a record, or (`field` is None) a result or item that is no record."""
        exposed = self.rules.exposed
        writable = tool in exposed.tools or field in exposed.classes.get(type(record).__name__, ())
        trusted = not writable and (not self.strict or self.table.find_result_label(tool, record).is_trusted)
        return label_from_tool(
            tool, (TrustSource.TRUSTED_TOOL,) if trusted else (), self._find_readers(tool, record)
        )

    def label_error(self, tool: str) -> FlowLabel:
        """Return the label of a tool's error text, which may hold anything the tool has read."""
        trusted = not self.strict and tool not in self.rules.exposed.tools and tool not in self.rules.free
        return label_from_tool(tool, (TrustSource.TRUSTED_TOOL,) if trusted else (), self.table.own)

    def _find_readers(self, tool: str, record: Any) -> Iterable[str] | None:
        readers = self.rules.readers
        rule = readers.tools.get(tool) or readers.classes.get(type(record).__name__) or readers.default
        if rule == "everyone":
            return None
        if rule == "user":
            return self.table.own
        if rule == "workspace":
            return list(self.environment.slack.users)
        if rule == "channel":  # a message's; of a direct message its two
            if record.recipient in self.environment.slack.channels:
                return list_channel_members(self.environment, record.recipient)
            return [record.sender, record.recipient]
        return [name for path in rule for name in read_identities(getattr(record, path, None))]


# Whatever a mail program might make clickable: a scheme, or a word with letters behind its dot. Of what stands before
# either no more is read than has to be: a text without links may be one long word.
_LINK = re.compile(r"[a-z][a-z0-9+.-]{0,40}://\S|[\w-]\.[^\W\d_]{2,}\b", re.IGNORECASE)


@dataclass(frozen=True)
class CallArgument:
    """One argument of a call, as it would be passed."""

    value: Any
    """Variables expanded."""
    label: FlowLabel


@dataclass(frozen=True)
class CallVerdict:
    """The decision on one call."""

    allow: bool
    rule: str
    """The rule that let it through or stopped it; empty for a free tool."""
    reason: str = ""
    """The violation: names of rules and arguments, never a value."""


def has_link(text: str) -> bool:
    """True if a text holds a link, bare domains included."""
    return _LINK.search(text) is not None


def judge_call(
    rules: FidesRules, tool: str, arguments: Mapping[str, CallArgument], call: FlowLabel, environment: Any
) -> CallVerdict:
    """Return the verdict on one call; `call` is the label of the decision to make it."""
    if tool in rules.free:
        return CallVerdict(True, "")
    policy = rules.policies.get(tool, FidesCallPolicy(rule="p1"))
    untrusted = "" if call.is_trusted else "P1: untrusted data has had a part in this call being made"
    if policy.rule == "p1":
        return CallVerdict(not untrusted, "P1", untrusted)
    unreadable = _find_unreadable(policy, arguments, environment)
    if policy.rule == "p_double_star":
        reason = untrusted or unreadable
        return CallVerdict(not reason, "P1 and P2", reason)
    if not unreadable:
        return CallVerdict(True, "P2")
    return CallVerdict(not untrusted, "P1", f"{untrusted}, and {unreadable}" if untrusted else "")


def _find_unreadable(policy: FidesCallPolicy, arguments: Mapping[str, CallArgument], environment: Any) -> str:
    """Return how a call violates P2: a recipient may not read an argument, or it has an untrusted link."""
    readers = set(_find_recipients(policy, arguments, environment))
    for name, argument in arguments.items():
        if argument.value is None:
            continue
        if not argument.label.is_readable_by(readers):
            return f"P2: somebody it goes to may not read {name}"
        if not argument.label.is_trusted and name not in policy.readers_are and _holds_link(argument.value):
            return f"P2: {name} has a link that is not trusted"
    return ""


def _find_recipients(
    policy: FidesCallPolicy, arguments: Mapping[str, CallArgument], environment: Any
) -> Iterable[str]:
    for name in policy.readers_are:
        if name in arguments:
            yield from read_identities(arguments[name].value)
    groups = (
        (policy.readers_are_sharers_of, list_file_sharers),
        (policy.readers_are_members_of, list_channel_members),
    )
    for named, group in groups:
        if named is not None and named in arguments:
            yield from group(environment, str(arguments[named].value))


def _holds_link(value: Any) -> bool:
    if isinstance(value, Mapping | list | tuple):
        return any(map(_holds_link, value.values() if isinstance(value, Mapping) else value))
    return has_link(str(value))
