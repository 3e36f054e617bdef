"""The commands that would fill a table's empty cells."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from agentsys.analysis.paper.filled import FilledTable, PaperRow
from agentsys.extensions import shipped_config_dirs

Names = tuple[str, ...]


def filling_commands(filled: FilledTable, logdir: str) -> list[str]:
    """One `agentsys run` per group of the paper's models, defenses and attacks that are missing together.

    Returns:
        Shell commands. Names without a shipped config are left out; see `without_config`.
    """
    return [
        f"agentsys run model={','.join(models)} defense={','.join(defenses)} attack={','.join(attacks)} "
        f"logdir={shlex.quote(logdir)}"
        for models, defenses, attacks in _grouped(_missing(filled))
    ]


def without_config(filled: FilledTable) -> list[str]:
    """Missing defenses and attacks that no shipped config names, e.g. `defense camel`."""
    wanted = _missing(filled)
    defenses = dict.fromkeys(defense for _, defense in wanted)
    attacks = dict.fromkeys(attack for found in wanted.values() for attack in found)
    return [
        *(f"defense {name}" for name in defenses if not _has_config("defense", name)),
        *(f"attack {name}" for name in attacks if not _has_config("attack", name)),
    ]


def _missing(filled: FilledTable) -> dict[tuple[str, str], dict[str, None]]:
    """(model, defense) -> attacks (or `none`) that an empty cell of the paper's rows needs."""
    wanted: dict[tuple[str, str], dict[str, None]] = {}
    for row in filled.rows:
        attacks = _empty_attacks(row)
        if row.printed and attacks:
            wanted.setdefault((row.model, row.defense), {}).update(attacks)
    return wanted


def _empty_attacks(row: PaperRow) -> dict[str, None]:
    """A cell is missing only where nothing else explains it: the attack has no case in the runs."""
    ran = {case.attack for case in row.line.cases} if row.line else set()
    empty = [cell.spot for cell in row.cells if cell.spot and cell.ours is None and cell.paper is not None]
    suites = {case.suite for case in row.line.cases} if row.line else set()
    return {spot.attack: None for spot in empty if spot.attack not in ran or spot.suite not in suites}


def _grouped(wanted: Mapping[tuple[str, str], Iterable[str]]) -> list[tuple[Names, Names, Names]]:
    """(models, defenses, attacks), merged first over defenses, then over models."""
    by_model: dict[tuple[str, Names], list[str]] = {}
    for (model, defense), attacks in wanted.items():
        known = tuple(attack for attack in attacks if _has_config("attack", attack))
        if known and _has_config("defense", defense) and _has_config("model", model):
            by_model.setdefault((model, known), []).append(defense)
    by_defenses: dict[tuple[Names, Names], list[str]] = {}
    for (model, known), defenses in by_model.items():
        by_defenses.setdefault((tuple(defenses), known), []).append(model)
    return [(tuple(models), *rest) for rest, models in by_defenses.items()]


def _has_config(group: str, name: str) -> bool:
    return any((folder / group / f"{name}.yaml").is_file() for folder in shipped_config_dirs())
