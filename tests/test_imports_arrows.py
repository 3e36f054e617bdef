"""Imports point one way only: read from every import statement, the ones inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

FOUNDATION = {
    "agentsys",
    "agentsys.errors",
    "agentsys.extras",
    "agentsys.ledger",
    "agentsys.config_dir",
    "agentsys.named_module",
    "agentsys.atomic_file",
    "agentsys.storable",
}
ALLOWED: dict[str, set[str]] = {
    "agentsys": {"agentsys.analysis.load"},
    "agentsys.__main__": {"agentsys.cli"},
    "agentsys.errors": set(),
    "agentsys.extras": {"agentsys.errors"},
    "agentsys.ledger": set(),
    "agentsys.config_dir": set(),
    "agentsys.named_module": {"agentsys.errors"},
    "agentsys.payload_lines": set(),
    "agentsys.atomic_file": set(),
    "agentsys.storable": set(),
    "agentsys.catalog": FOUNDATION,
    "agentsys.contracts": {"agentsys.models"},
    "agentsys.models": FOUNDATION,
    "agentsys.benchmarks": FOUNDATION | {"agentsys.models", "agentsys.contracts", "agentsys.payload_lines"},
    "agentsys.attacks": FOUNDATION | {"agentsys.models", "agentsys.contracts"},
    "agentsys.defense": FOUNDATION | {"agentsys.models", "agentsys.contracts"},
    "baselines": FOUNDATION | {"agentsys.models", "agentsys.contracts"},
    "agentsys.runs": FOUNDATION
    | {
        "agentsys.models",
        "agentsys.contracts",
        "agentsys.benchmarks",
        "agentsys.attacks",
        "agentsys.catalog",
    },
    "agentsys.rescoring": FOUNDATION
    | {
        "agentsys.models",
        "agentsys.benchmarks",
        "agentsys.runs",
        "agentsys.analysis",
        "agentsys.payload_lines",
    },
    "agentsys.audit": FOUNDATION
    | {
        "agentsys.models",
        "agentsys.contracts",
        "agentsys.benchmarks",
        "agentsys.attacks",
        "agentsys.runs.record",
        "agentsys.runs.case",
        "agentsys.analysis",
        "agentsys.rescoring",
        "agentsys.payload_lines",
    },
    "agentsys.analysis": FOUNDATION
    | {"agentsys.runs.record", "agentsys.runs.case", "agentsys.runs.stored_plan", "agentsys.payload_lines"},
}
"""Room (or single module) -> what it may import of ours, besides itself. A room that is not listed
may import nothing of ours: put it here when it is new. `agentsys.cli` may import everything."""

HEAVY = {"agentdojo", "openai", "anthropic", "google", "litellm", "hydra", "omegaconf"}
"""What `analysis` must do without: a table of stored runs needs no benchmark and no SDK."""


def modules() -> list[Path]:
    return sorted(path for room in ("agentsys", "baselines") for path in (ROOT / room).rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, module: str, is_package: bool) -> Iterator[str]:
    """Full names of everything a module imports; `from a import b` counts as `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, is_package)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


def room_of(module: str) -> str:
    """`baselines`, or the first two parts of a name under `agentsys`."""
    parts = module.split(".")
    return parts[0] if parts[0] == "baselines" else ".".join(parts[:2])


def forbidden(module: str, name: str) -> bool:
    """Whether `module` may not import `name`."""
    room = room_of(module)
    if room == "agentsys.cli" or not (within(name, "agentsys") or within(name, "baselines")):
        return room == "agentsys.analysis" and name.split(".")[0] in HEAVY
    if within(name, room) and room != "agentsys":
        return False
    allowed = ALLOWED.get(room, set())
    # Of the package itself only names such as `agentsys.__version__`, not whatever is in it.
    top = "agentsys" in allowed and name.count(".") <= 1 and not _is_module(name)
    return not top and not any(within(name, target) for target in allowed - {"agentsys"})


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return name != "agentsys" and (path.is_dir() or path.with_suffix(".py").is_file())


def test_every_module_imports_only_what_its_room_may() -> None:
    wrong = [
        f"{name_of(path)} may not import {name}"
        for path in modules()
        for name in imported(path.read_text(encoding="utf-8"), name_of(path), path.name == "__init__.py")
        if forbidden(name_of(path), name)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agentsys.models.loop", "agentsys.contracts.Defense"),
        ("agentsys.defense.worker", "agentsys.runs.case.Case"),
        ("baselines.none", "agentsys.analysis.frame"),
        ("baselines.none", "agentsys.defense.gate"),
        ("agentsys.runs.plan", "agentsys.cli.run"),
        ("agentsys.runs.plan", "agentsys.defense.gate"),
        ("agentsys.analysis.frame", "agentsys.runs.store"),
        ("agentsys.analysis.frame", "agentdojo.types"),
        ("agentsys.models.build", "agentsys.cli"),
        ("agentsys.new_module", "agentsys.runs"),
        ("agentsys.models.build", "agentsys.runs"),
    ],
)
def test_wrong_arrows_are_told_apart(module: str, name: str) -> None:
    assert forbidden(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agentsys.analysis.frame", "agentsys.runs.record.CaseRecord"),
        ("agentsys.analysis.frame", "pandas"),
        ("agentsys.runs.plan", "agentsys.benchmarks.agentdojo"),
        ("agentsys.runs.build_record", "agentsys.__version__"),
        ("agentsys.runs.build_record", "agentsys"),
        ("baselines.none", "agentsys.models.loop.tool_loop"),
        ("agentsys.cli.run", "agentsys.runs.session"),
    ],
)
def test_right_arrows_pass(module: str, name: str) -> None:
    assert not forbidden(module, name)


def test_relative_imports_are_resolved() -> None:
    assert list(imported("from .case import Case", "agentsys.runs.plan", False)) == [
        "agentsys.runs.case.Case"
    ]
    assert list(imported("from . import case", "agentsys.runs", True)) == ["agentsys.runs.case"]
    assert list(imported("from ..cli import run", "agentsys.runs.plan", False)) == ["agentsys.cli.run"]
