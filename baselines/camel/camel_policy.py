"""`CamelJudge`: decides on tool calls of a program by the policies of a suite, read from data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from agentsys.models.pipeline_elements import has_reading_name
from baselines.camel.language.machine import ProgramError
from baselines.flow.label_table import (
    GroupLookup,
    SuiteData,
    channel_members,
    event_participants,
    file_sharers,
    load_packaged_file,
    read_identities,
)
from baselines.flow.labelled_values import FlowLabel, Value, to_native


class ReadableBy(SuiteData):
    """Some may read some arguments."""

    what: tuple[str, ...]
    """Arguments."""
    by: tuple[str, ...] = ()
    """Arguments that hold identities."""
    by_members_of: str | None = None
    """The argument that names a channel."""
    by_participants_of: str | None = None
    """The argument that names a calendar event."""
    by_sharers_of: str | None = None
    """The argument that names a file."""


class CamelCondition(SuiteData):
    """What must hold, all of it; nothing at all always holds."""

    trusted: tuple[str, ...] = ()
    """Arguments that must be trusted."""
    trusted_if_given: tuple[str, ...] = ()
    """Arguments that must be trusted if they are there at all."""
    not_trusted: tuple[str, ...] = ()
    """Arguments that must not be, as an inverted rule has it."""
    public: tuple[str, ...] = ()
    """Arguments that everyone may read."""
    readable: ReadableBy | None = None
    attached_files_shared_with: tuple[str, ...] = ()
    """Arguments with identities who must share every file of `attachments`."""
    any_of: tuple[CamelCondition, ...] = ()
    """One of these must hold."""
    raises: Literal["KeyError", "NotImplementedError"] | None = None
    """The rule itself breaks, which the program meets as an error."""


class CamelPolicies(SuiteData):
    """The file of one suite."""

    free: tuple[str, ...]
    """Tools that change nothing."""
    rules: Mapping[str, CamelCondition]
    """Tool -> when it may run. A tool that stands nowhere may not."""
    published: Mapping[str, CamelCondition] = {}
    """Tool -> the rule of the reference implementation, where it is a slip that is mended in `rules`."""
    generated: bool = False
    """Whether they were made from the tools' names, for want of a file."""


@lru_cache(maxsize=64)
def load_written_policies(suite: str) -> CamelPolicies | None:
    """The policies of a suite, or None if there is no file of its name."""
    return load_packaged_file(f"{suite}.yaml", CamelPolicies, "baselines.camel", "policies")


def generate_policies(tools: Mapping[str, Iterable[str]]) -> CamelPolicies:
    """Policies for any tools: reading is free, and everything else takes trusted arguments alone."""
    free = tuple(name for name in tools if has_reading_name(name, "query"))
    rules = {name: CamelCondition(trusted=tuple(tools[name])) for name in tools if name not in free}
    return CamelPolicies(free=free, rules=rules, generated=True)


@dataclass(frozen=True)
class CamelJudge:
    """Decides on calls by the policies of a suite."""

    policies: CamelPolicies
    as_published: bool = False

    def find_denial(
        self, tool: str, arguments: Mapping[str, Value], control: FlowLabel, environment: object
    ) -> str | None:
        """Say why a call may not be made; None if it may.

        Args:
            tool: The tool.
            arguments: By name, defaults filled in unless `as_published`.
            control: Everything that decided that the call is made.
            environment: Whose channels, events and files the rules look at.

        Raises:
            ProgramError: If the rule itself breaks.
        """
        if tool in self.policies.free:
            return None
        if not control.is_public:
            return "whether it is made depends on something that not everyone may read"
        rule = (self.as_published and self.policies.published.get(tool)) or self.policies.rules.get(tool)
        if rule is None:
            return "no policy allows it"
        return _PolicyCheck(arguments, environment).find_violation(rule)


@dataclass(frozen=True)
class _PolicyCheck:
    arguments: Mapping[str, Value]
    environment: Any

    def find_violation(self, rule: CamelCondition) -> str | None:
        """Say what of a condition does not hold."""
        if rule.raises is not None:
            raise ProgramError(rule.raises, "the policy of this tool is broken")
        optional = [name for name in rule.trusted_if_given if name in self.arguments]
        for name in (*rule.trusted, *optional):
            if not self._argument_value(name).full.is_trusted:
                return f"{name} is not trusted"
        for name in rule.not_trusted:
            if self._argument_value(name).full.is_trusted:
                return f"{name} is trusted"
        for name in rule.public:
            if not self._argument_value(name).full.is_public:
                return f"not everyone may read {name}"
        if rule.readable is not None:
            readers = set(self._find_readers(rule.readable))
            for name in rule.readable.what:
                if not self._argument_value(name).full.is_readable_by(readers):
                    return f"somebody addressed may not read {name}"
        if rule.attached_files_shared_with and not self._files_are_shared(rule.attached_files_shared_with):
            return "an attached file is not shared with everyone addressed"
        reasons = []
        for option in rule.any_of:
            reason = self.find_violation(option)
            if reason is None:
                return None
            reasons.append(reason)
        return ", and ".join(reasons) or None

    def _find_readers(self, wanted: ReadableBy) -> Iterable[str]:
        yield from self._find_identities(wanted.by)
        groups: tuple[tuple[str | None, GroupLookup], ...] = (
            (wanted.by_members_of, channel_members),
            (wanted.by_participants_of, event_participants),
            (wanted.by_sharers_of, file_sharers),
        )
        for argument, group in groups:
            if argument is not None:
                yield from group(self.environment, str(self._native(argument)))

    def _files_are_shared(self, addressed: Iterable[str]) -> bool:
        readers = set(self._find_identities(addressed))
        attached = [item for item in self._native("attachments") or [] if isinstance(item, dict)]
        files = [item.get("file_id") for item in attached if item.get("type") == "file"]
        return all(readers <= set(file_sharers(self.environment, str(file))) for file in files)

    def _find_identities(self, names: Iterable[str]) -> Iterable[str]:
        for name in names:
            yield from read_identities(self._native(name))

    def _native(self, name: str) -> Any:
        return to_native(self._argument_value(name))

    def _argument_value(self, name: str) -> Value:
        if name not in self.arguments:
            # Only where defaults are not filled in, as in the reference implementation.
            raise ProgramError("KeyError", repr(name))
        return self.arguments[name]
