"""Expectations of an audit: reading them, comparing an audit with one, writing one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError

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
    """An expectation as JSON with one line per task, so that a change shows as a line."""
    head = [f"{_format_json(key)}: {_format_json(value)}" for key, value in expected.items() if key != "suites"]
    suites = [f"{_format_json(name)}: {_format_suite(suite)}" for name, suite in expected["suites"].items()]
    joined = ",\n".join(suites)
    return "{\n" + ",\n".join([*head, '"suites": {\n' + joined + "\n}"]) + "\n}\n"


def _format_suite(suite: Mapping[str, Any]) -> str:
    kinds = [f"{_format_json(kind)}: {_format_rows(suite[kind])}" for kind in _TASK_KINDS]
    return "{\n" + ",\n".join([f'"data_hash": {_format_json(suite["data_hash"])}', *kinds]) + "}"


def _format_rows(rows: Mapping[str, Any]) -> str:
    return "{\n" + ",\n".join(f" {_format_json(task)}: {_format_json(row)}" for task, row in rows.items()) + "}"


def _format_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=True)


def list_expectation_changes(expected: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """List what moved, a line each; no line if all is as expected.

    Args:
        expected: The expectation; suites in it that were not audited are not compared.
        found: The new findings, from `agentsys.audit.static.json_form.build_expectation`.
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
            yield f"{where} {field}: expected {_format_field(expected, field)}, found {_format_field(found, field)}"


def _format_field(row: Mapping[str, Any], field: str) -> str:
    return _format_json(row[field]) if field in row else "nothing remarkable"
