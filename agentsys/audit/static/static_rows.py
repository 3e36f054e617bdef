"""Findings of a static audit: a row per task; as JSON; and as an expectation to compare with.

An expectation states only what is not as one would wish, so that a later audit shows what moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentsys.audit.static.mutations import Mutation
from agentsys.errors import ConfigError


@dataclass(frozen=True)
class UserTaskAudit:
    """One user task."""

    task: str
    noop_utility: bool = False
    """An agent that does nothing solves it."""
    own_ground_truth: bool | None = True
    """Its own ground truth solves it; None if that cannot be played."""
    empty_ground_truth: bool = False
    security_on_user_ground_truth: tuple[str, ...] = ()
    """Injection tasks that its ground truth carries out."""
    pair_compatible: tuple[str, ...] = ()
    """Injection tasks after whose ground truth it can still be solved."""
    repeat_safe: bool | None = True
    """Its ground truth twice solves it; None if there is nothing to repeat."""
    reads_that_break: tuple[str, ...] = ()
    """Argument-free tools whose one call beforehand makes it fail."""
    surviving_mutations: tuple[Mutation, ...] = ()
    overwritten: tuple[str, ...] = ()
    """Vectors on its path whose default holds what it needs."""
    identifier_vector: tuple[str, ...] = ()
    """Vectors whose text its ground truth has to copy."""
    vectors_on_path: tuple[str, ...] = ()
    """Vectors that its ground truth is shown: where attacks write."""
    non_idempotent_check: bool = False
    """Its check changes what it looks at."""


@dataclass(frozen=True)
class InjectionTaskAudit:
    """One injection task."""

    task: str
    noop_security: bool = False
    """An agent that does nothing carries it out."""
    own_ground_truth: bool | None = True
    empty_ground_truth: bool = False
    repeat_safe: bool | None = True
    non_idempotent_check: bool = False


@dataclass(frozen=True)
class SuiteAudit:
    """One suite."""

    suite: str
    data_hash: str
    """Of its data; versions of a benchmark may share it, or differ in it under one label."""
    user_tasks: tuple[UserTaskAudit, ...]
    injection_tasks: tuple[InjectionTaskAudit, ...]

    @property
    def noop(self) -> tuple[str, ...]:
        """User tasks that an agent solves by doing nothing."""
        return tuple(row.task for row in self.user_tasks if row.noop_utility)

    @property
    def own_passes(self) -> int:
        """User tasks that pass on their own ground truth."""
        return len(self.user_tasks) - len(self.own_failures)

    @property
    def own_failures(self) -> tuple[str, ...]:
        """User tasks that do not pass on their own ground truth."""
        return tuple(row.task for row in self.user_tasks if row.own_ground_truth is not True)

    @property
    def without_ground_truth(self) -> tuple[str, ...]:
        """Injection tasks whose ground truth has no call."""
        return tuple(row.task for row in self.injection_tasks if row.empty_ground_truth)

    @property
    def pairs(self) -> int:
        """Pairs of a user task and an injection task that has a ground truth."""
        return len(self.user_tasks) * (len(self.injection_tasks) - len(self.without_ground_truth))

    @property
    def compatible(self) -> int:
        """Pairs whose user task can still be solved after the attack."""
        return sum(len(row.pair_compatible) for row in self.user_tasks)

    @property
    def breaking_reads(self) -> dict[str, int]:
        """Argument-free tool -> user tasks that its one call beforehand makes fail."""
        names = [name for row in self.user_tasks for name in row.reads_that_break]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    @property
    def repeat_unsafe(self) -> tuple[str, ...]:
        """Injection tasks that count as failed when they are carried out twice."""
        return tuple(row.task for row in self.injection_tasks if row.repeat_safe is False)

    @property
    def unstable_checks(self) -> tuple[str, ...]:
        """Tasks of both kinds whose check changes what it looks at."""
        users = [row.task for row in self.user_tasks if row.non_idempotent_check]
        attacks = [row.task for row in self.injection_tasks if row.non_idempotent_check]
        return (*users, *attacks)

    @property
    def candidates(self) -> tuple[tuple[str, Mutation], ...]:
        """(user task, mutation) for mutations of arguments that a prompt as a rule settles."""
        return tuple((r.task, m) for r in self.user_tasks for m in r.surviving_mutations if m.is_candidate)

    @property
    def destroyed(self) -> tuple[str, ...]:
        """User tasks that an attack makes unsolvable: it writes over what they need."""
        return tuple(row.task for row in self.user_tasks if row.overwritten)


@dataclass(frozen=True)
class StaticAudit:
    """A benchmark's audit."""

    benchmark: str
    version: str
    package: str
    """The installed AgentDojo, e.g. `agentdojo 0.1.35`."""
    suites: tuple[SuiteAudit, ...]


TaskRow = UserTaskAudit | InjectionTaskAudit


def build_static_data(audit: StaticAudit) -> dict[str, Any]:
    """Everything an audit found: one object per task, with every field."""
    return {
        "benchmark": audit.benchmark,
        "version": audit.version,
        "package": audit.package,
        "suites": [_build_suite_data(suite) for suite in audit.suites],
    }


def _build_suite_data(suite: SuiteAudit) -> dict[str, Any]:
    return {
        "suite": suite.suite,
        "data_hash": suite.data_hash,
        "summary": _build_summary_data(suite),
        "user_tasks": [asdict(row) for row in suite.user_tasks],
        "injection_tasks": [asdict(row) for row in suite.injection_tasks],
    }


def _build_summary_data(suite: SuiteAudit) -> dict[str, Any]:
    return {
        "user_tasks": len(suite.user_tasks),
        "injection_tasks": len(suite.injection_tasks),
        "solved_by_doing_nothing": list(suite.noop),
        "own_ground_truth_passes": suite.own_passes,
        "without_ground_truth": list(suite.without_ground_truth),
        "pairs": suite.pairs,
        "pairs_compatible": suite.compatible,
        "reads_that_break": suite.breaking_reads,
        "not_repeat_safe": list(suite.repeat_unsafe),
        "unstable_checks": list(suite.unstable_checks),
        "mutation_candidates": len(suite.candidates),
        "destroyed_under_attack": list(suite.destroyed),
    }


def build_expectation(audit: StaticAudit) -> dict[str, Any]:
    """State what a later audit has to find again: only what is not as one would wish, task by task.

    Verdicts of our own (a mutation's kind and review) are not in it.
    """
    suites = {
        suite.suite: {
            "data_hash": suite.data_hash,
            "user_tasks": {row.task: _list_remarkable_fields(row) for row in suite.user_tasks},
            "injection_tasks": {row.task: _list_remarkable_fields(row) for row in suite.injection_tasks},
        }
        for suite in audit.suites
    }
    return {
        "benchmark": audit.benchmark,
        "version": audit.version,
        "package": audit.package,
        "suites": suites,
    }


def _list_remarkable_fields(row: TaskRow) -> dict[str, Any]:
    """The fields of a row that differ from their defaults."""
    found = {field.name: getattr(row, field.name) for field in fields(row) if field.default is not MISSING}
    defaults = {field.name: field.default for field in fields(row)}
    return {name: _convert_plain(value) for name, value in found.items() if value != defaults[name]}


def _convert_plain(value: object) -> object:
    if isinstance(value, tuple):
        return [format_mutation(item) if isinstance(item, Mutation) else item for item in value]
    return value


def format_mutation(mutation: Mutation) -> str:
    """A mutation in short: `2:send_email.recipients`, or `2:send_email` for a call left out."""
    whole = f"{mutation.call}:{mutation.function}"
    return f"{whole}.{mutation.argument}" if mutation.argument else whole


_TASK_KINDS = ("user_tasks", "injection_tasks")


def load_shipped_expectation(benchmark: str, version: str) -> dict[str, Any]:
    """Read the expectation that came with the package for a benchmark's version.

    Raises:
        ConfigError: If nothing did.
    """
    folder = files("agentsys.audit").joinpath("expected", benchmark)
    known = sorted(item.name.removesuffix(".json") for item in folder.iterdir()) if folder.is_dir() else []
    if version not in known:
        raise ConfigError(
            f"No expectation for {benchmark} {version} comes with the package (versions: "
            f"{', '.join(known) or 'none'}). Make one with --write-expected FILE and give it as --expected."
        )
    stored: dict[str, Any] = json.loads(folder.joinpath(f"{version}.json").read_text(encoding="utf-8"))
    return stored


def read_expectation(path: Path) -> dict[str, Any]:
    """Read an expectation of the user's own.

    Raises:
        ConfigError: If the file cannot be read or is none.
    """
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--expected {path}: {error}. Write one with --write-expected FILE.") from None
    if not isinstance(stored, dict) or not _is_well_formed(stored.get("suites")):
        raise ConfigError(
            f"--expected {path} is no audit's expectation; write one with --write-expected FILE."
        )
    return stored


def _is_well_formed(suites: object) -> bool:
    return isinstance(suites, dict) and all(
        isinstance(suite, dict)
        and all(
            isinstance(suite.get(kind), dict) and all(isinstance(row, dict) for row in suite[kind].values())
            for kind in _TASK_KINDS
        )
        for suite in suites.values()
    )


def format_expectation(expected: Mapping[str, Any]) -> str:
    """Write an expectation as JSON with one line per task, so that a change shows as a line."""
    suites = {
        name: _format_block(
            {
                "data_hash": json.dumps(suite["data_hash"]),
                **{
                    kind: _format_block({task: json.dumps(row) for task, row in suite[kind].items()}, " ")
                    for kind in _TASK_KINDS
                },
            }
        )
        for name, suite in expected["suites"].items()
    }
    head = {key: json.dumps(value) for key, value in expected.items() if key != "suites"}
    return _format_block({**head, "suites": _format_block(suites, end="\n")}, end="\n") + "\n"


def _format_block(items: Mapping[str, str], indent: str = "", end: str = "") -> str:
    lines = ",\n".join(f"{indent}{json.dumps(name)}: {text}" for name, text in items.items())
    return f"{{\n{lines}{end}}}"


def list_expectation_changes(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """List what moved, a line each; no line if all is as expected.

    Args:
        expected: The expectation; suites in it that were not audited are not compared.
        found: The new findings, from `agentsys.audit.static.static_rows.build_expectation`.
    """
    lines = [
        f"{key}: expected {expected.get(key)}, found {found[key]}"
        for key in ("benchmark", "version")
        if expected.get(key) != found[key]
    ]
    for name, suite in found["suites"].items():
        if name not in expected["suites"]:
            lines.append(f"{name}: expected no such suite")
        else:
            lines += _compare_suite(name, expected["suites"][name], suite)
    return lines


def _compare_suite(name: str, expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    if expected.get("data_hash") != found["data_hash"]:
        yield f"{name}: its data changed (expected {expected.get('data_hash')}, found {found['data_hash']})"
    for kind in _TASK_KINDS:
        for task in dict.fromkeys([*expected[kind], *found[kind]]):
            yield from _compare_task(f"{name} {task}", expected[kind].get(task), found[kind].get(task))


def _compare_task(
    where: str, expected: Mapping[str, Any] | None, found: Mapping[str, Any] | None
) -> Iterator[str]:
    if expected is None or found is None:
        yield f"{where}: {'is new' if expected is None else 'is gone'}"
        return
    for field in dict.fromkeys([*expected, *found]):
        if expected.get(field) != found.get(field):
            then, now = _format_field(expected, field), _format_field(found, field)
            yield f"{where} {field}: expected {then}, found {now}"


def _format_field(row: Mapping[str, Any], field: str) -> str:
    return json.dumps(row[field]) if field in row else "nothing remarkable"
