"""Imports point one way only: read from every import statement, the ones inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from optional_rooms import NEEDS
from parsed_sources import list_nodes, list_product_files
from provider_sdks import provider_sdks

from agentsys.extensions import OUR_PACKAGES

ROOT = Path(__file__).parents[2]

FOUNDATION = {"agentsys", "agentsys.errors", "agentsys.extensions", "agentsys.base"}
PLUGINS = {"agentsys.models", "agentsys.simulated", "agentsys.contracts"}
"""What benchmarks, attacks and defenses are made of."""
CASES = FOUNDATION | PLUGINS | {"agentsys.records", "agentsys.benchmarks", "agentsys.attacks"}
"""What runs a case."""
ALLOWED: dict[str, set[str]] = {
    "agentsys": {"agentsys.api", "agentsys.records.case_reader"},
    "agentsys.api": FOUNDATION | {"agentsys.records", "agentsys.analysis", "agentsys.runs"},
    "agentsys.plugins": FOUNDATION
    | PLUGINS
    | {"agentsys.records.case_row", "agentsys.analysis.metrics.own_metric"},
    "agentsys.__main__": {"agentsys.cli"},
    "agentsys.errors": set(),
    "agentsys.extensions": {"agentsys", "agentsys.errors"},
    "agentsys.base": FOUNDATION,
    "agentsys.contracts": {"agentsys.models", "agentsys.simulated", "agentsys.base.declared_facts"},
    "agentsys.models": FOUNDATION,
    "agentsys.simulated": FOUNDATION | {"agentsys.models"},
    **dict.fromkeys(
        ("agentsys.benchmarks", "agentsys.attacks", "agentsys.defense", "baselines"), FOUNDATION | PLUGINS
    ),
    "agentsys.serve_agent": {"agentsys.base.moved_names"},
    "agentsys.records": FOUNDATION,
    "agentsys.runs": CASES,
    "agentsys.analysis": FOUNDATION | {"agentsys.records"},
}
"""Room (or single module) -> what it may import of ours, besides itself. A room that is not listed
may import nothing of ours: put it here when it is new. `agentsys.cli` may import all but guests, a guest all of
the core but `agentsys.cli`, which its modules of commands need."""

INSIDE: dict[str, set[str]] = {
    "agentsys.analysis.statistics": set(),
    "agentsys.analysis.metrics": {"statistics"},
    "agentsys.analysis.tables": {"statistics", "metrics", "published"},
    "agentsys.analysis.paper": {"statistics", "metrics", "tables", "published"},
    "agentsys.analysis.figures": {"statistics", "metrics", "tables", "published", "paper"},
    "agentsys.analysis.html_report": {"statistics", "metrics", "tables", "published", "paper", "figures"},
    "agentsys_plugins.audit.static": {"process_pool"},
    "agentsys_plugins.audit.rescoring": {"process_pool"},
}
"""Sub-room -> names inside its own room that it may import. A sub-room that is not listed may import all
of its room: its room cannot do without it (`runs.search`) or it is a border of its own."""

OUT_OF_REACH: dict[str, set[str]] = {
    "agentsys.models.providers": {"wrappers", "replay", "serving", "build_model", "pipeline_elements"},
    "agentsys.models.wrappers": {"replay", "serving", "build_model"},
}
"""Sub-room -> names inside its own room that it may not import."""

HEAVY = {"agentdojo", "hydra", "omegaconf"} | {sdk.split(".")[0] for sdk in provider_sdks()}
"""What `records` and `analysis` must do without: a table of stored runs needs no benchmark and no SDK."""
LIGHT = {"agentsys.records", "agentsys.analysis"}


GUESTS = "agentsys_plugins"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(nodes: Iterable[ast.AST], module: str, is_package: bool) -> Iterator[str]:
    """Full names of everything a module imports; `from a import b` counts as `a.b`."""
    for node in nodes:
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
    """`baselines`, or the first two parts of another name."""
    parts = module.split(".")
    return parts[0] if parts[0] == "baselines" else ".".join(parts[:2])


def guest_of(name: str) -> str | None:
    """The guest that a module is in, or a name out of one."""
    return name.split(".")[1] if within(name, GUESTS) and "." in name else None


def forbidden(module: str, name: str) -> bool:
    """Whether `module` may not import `name`."""
    room = room_of(module)
    own, wanted = guest_of(module), guest_of(name)
    if wanted is not None and wanted != own and wanted not in NEEDS.get(own, ()):
        return True
    if own and not within(name, room):
        return within(name, "agentsys.cli") and not module.endswith("command")
    if room == "agentsys.cli" or name.split(".")[0] not in OUR_PACKAGES:
        return room in LIGHT and name.split(".")[0] in HEAVY
    if within(name, room) and room != "agentsys":
        return _upwards(module, name, room)
    allowed = ALLOWED.get(room, set())
    # Of the package itself only names such as `agentsys.__version__`, not whatever is in it.
    top = "agentsys" in allowed and name.count(".") <= 1 and not _is_module(name)
    return not top and not any(within(name, target) for target in allowed - {"agentsys"})


def _upwards(module: str, name: str, room: str) -> bool:
    """Whether an import inside one room leaves its sub-room for where it may not go."""
    sub = ".".join(module.split(".")[:3])
    if within(name, sub):
        return False
    if any(within(name, f"{room}.{target}") for target in OUT_OF_REACH.get(sub, ())):
        return True
    allowed = INSIDE.get(sub)
    return allowed is not None and not any(within(name, f"{room}.{target}") for target in allowed)


@cache
def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return name != "agentsys" and (path.is_dir() or path.with_suffix(".py").is_file())


@cache
def imports() -> list[tuple[str, str]]:
    """Each module with each name that it imports."""
    return [
        (name_of(path), name)
        for path in list_product_files()
        for name in imported(list_nodes(path), name_of(path), path.name == "__init__.py")
    ]


def test_every_module_imports_only_what_its_room_may() -> None:
    wrong = [f"{module} may not import {name}" for module, name in imports() if forbidden(module, name)]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    arrows = {(module, _module_in(name)) for module, name in imports()}
    assert sorted(pair for pair in arrows if pair[0] < pair[1] and pair[::-1] in arrows) == []


def _module_in(name: str) -> str:
    """The module that an imported name is in, or the module itself."""
    return name if _is_module(name) else name.rpartition(".")[0]


def test_the_listed_sub_rooms_exist() -> None:
    assert [room for room in (*INSIDE, *OUT_OF_REACH) if not ROOT.joinpath(*room.split(".")).is_dir()] == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agentsys.models.pipeline_elements", "agentsys.contracts.Defense"),
        ("baselines.none", "agentsys.defense.gate"),
        ("agentsys.runs.plan", "agentsys.cli.run_command"),
        ("agentsys.analysis.frame", "agentdojo.types"),
        ("agentsys.analysis.statistics.paired", "agentsys.analysis.metrics.rates.MeasuredCell"),
        ("agentsys_plugins.audit.static.task_checks", "agentsys_plugins.audit.trace_audit"),
        ("agentsys.models.providers.openai", "agentsys.models.wrappers.reply_cache"),
        ("agentsys.new_module", "agentsys.runs"),
        ("agentsys_plugins.guards.guard_score", "agentsys_plugins.audit.audit_report"),
        ("agentsys.attacks.search_attacks", "agentsys_plugins.redteam.evolve_attack"),
        ("agentsys_plugins.audit.audit_report", "agentsys.cli.cli_output"),
        ("agentsys_plugins.rivals.stack", "agentsys_plugins.vectors.middleware.guard"),
    ],
)
def test_wrong_arrows_are_told_apart(module: str, name: str) -> None:
    assert forbidden(module, name)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("agentsys.analysis.frame", "agentsys.records.schema.CaseRecord"),
        ("agentsys.analysis.frame", "pandas"),
        ("agentsys.analysis.statistics.differences", "agentsys.analysis.statistics.rate_estimates.Estimate"),
        ("agentsys.runs.build_record", "agentsys.__version__"),
        ("agentsys.cli.run_command", "agentsys.runs.run_session"),
        ("agentsys_plugins.audit.audit_command", "agentsys.cli.cli_output"),
    ],
)
def test_right_arrows_pass(module: str, name: str) -> None:
    assert not forbidden(module, name)


def test_relative_imports_are_resolved() -> None:
    for source, module, is_package, name in (
        ("from .case import Case", "agentsys.runs.plan", False, "agentsys.runs.case.Case"),
        ("from . import case", "agentsys.runs", True, "agentsys.runs.case"),
        ("from ..cli import run_command", "agentsys.runs.plan", False, "agentsys.cli.run_command"),
    ):
        assert list(imported(ast.walk(ast.parse(source)), module, is_package)) == [name]
