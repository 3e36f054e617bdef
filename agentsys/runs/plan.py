"""Settings -> cases: every pair of tasks of every cell, less what is finished."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from agentsys.abilities import NamesTasks
from agentsys.contracts import AttackKind
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case import Case
from agentsys.runs.applicable import LeftOut, Pair, Pairs, applicable, left_out, nothing_left
from agentsys.runs.cell import Cell
from agentsys.runs.instantiate import check_abilities
from agentsys.runs.store import Store

_log = logging.getLogger(__name__)

_NAMED = 5
"""Tasks that a warning names; of others it gives the number."""


@dataclass(frozen=True)
class Job:
    """A case with the cell it belongs to."""

    case: Case
    cell: Cell


@dataclass(frozen=True)
class Plan:
    """The cases that a run is to do."""

    jobs: tuple[Job, ...]
    """Every case, finished ones included, in order."""
    todo: tuple[Job, ...]
    """The cases to run now."""
    finished: int
    """Cases whose record is already there."""
    failed_before: int
    """Cases among `todo` whose record is an error."""
    corrupt: tuple[str, ...]
    """Files that did not parse; their cases are run again."""
    skipped: tuple[LeftOut, ...] = ()
    """What attacks do not apply to, one per attack that leaves something out."""
    replaced: int = 0
    """Cases among `todo` whose record is kept aside first, as they are run anew."""


def plan(cells: Sequence[Cell], store: Store, *, again: bool = False) -> Plan:
    """Expand cells into cases and drop the finished ones.

    A case counts as finished only under the configuration it was finished under. One that ended in an
    error binds nobody: its cause may be the very setting that was mended since.

    Args:
        cells: The cells, in order.
        store: Store that holds the finished cases.
        again: Whether finished cases are run anew as well.

    Raises:
        ConfigError: If tasks are unknown, if finished cases were made under another configuration, or if
            two cells of different configurations would write the same records.
    """
    sorted_out = [(cell, _applicable(cell)) for cell in cells]
    skipped = left_out(sorted_out)
    _say_unmatched(cells)
    jobs = _each_once(job for cell, pairs in sorted_out for job in _jobs(cell, pairs))
    if not jobs and skipped:
        raise ConfigError(nothing_left(skipped))
    if again:
        stored = sum((store.root / job.case.key).exists() for job in jobs)
        return Plan(tuple(jobs), tuple(jobs), 0, 0, (), skipped, stored)
    hashes = {id(cell): cell.settings.config_hash for cell in cells}
    todo, failed, corrupt = [], 0, []
    for job in jobs:
        found = store.look(job.case)
        if found.status == "ok" and found.config_hash != hashes[id(job.cell)]:
            raise ConfigError(stale(job, found.config_hash, store))
        if found.status == "ok":
            continue
        todo.append(job)
        failed += found.status == "error"
        if found.status == "corrupt":
            corrupt.append(job.case.key)
    return Plan(tuple(jobs), tuple(todo), len(jobs) - len(todo), failed, tuple(corrupt), skipped)


def _each_once(jobs: Iterable[Job]) -> list[Job]:
    """The jobs, one per record; a cell that is named twice is one cell."""
    found: dict[str, Job] = {}
    compared: set[tuple[int, int]] = set()
    for job in jobs:
        first = found.setdefault(job.case.key, job)
        cells = id(first.cell), id(job.cell)
        if first.cell is not job.cell and cells not in compared:
            compared.add(cells)
            if first.cell.settings.config_hash != job.cell.settings.config_hash:
                raise ConfigError(_shared(first, job))
    return list(found.values())


def _say_unmatched(cells: Iterable[Cell]) -> None:
    """Warn, once per attack, of tasks it was told by name and that no benchmark of these has."""
    named: dict[str, list[set[str]]] = {}
    for cell in cells:
        if isinstance(cell.attack, NamesTasks):
            named.setdefault(cell.attack.name, []).append(set(cell.attack.unmatched(cell.benchmark)))
    for attack, found in named.items():
        nowhere = sorted(set.intersection(*found))
        if nowhere:
            more = f" and {len(nowhere) - _NAMED} more" if len(nowhere) > _NAMED else ""
            _log.warning(
                "%s: %d texts are for tasks that are not there: %s%s.",
                ascii(attack).strip("'"),
                len(nowhere),
                ", ".join(nowhere[:_NAMED]),
                more,
            )


def _applicable(cell: Cell) -> Pairs:
    """The pairs of a cell that its attack applies to, and the others."""
    names = _wanted("suite", cell.settings.benchmark.get("suites"), [cell.benchmark.suite_names()])
    _check_tasks(cell, names)
    return applicable(cell, {name: list(_pairs(cell, name)) for name in names})


def _jobs(cell: Cell, found: Pairs) -> Iterator[Job]:
    for name, fitting in found.fit.items():
        pairs = _spread(fitting, cell.settings.limit)
        for epoch, (user_task, injection_task) in product(range(cell.settings.epochs), pairs):
            yield Job(_case(cell, name, user_task, injection_task, epoch), cell)


def _pairs(cell: Cell, name: str) -> Iterator[Pair]:
    suite = cell.benchmark.suite(name)
    users = _kept(suite.user_tasks, cell.settings.user_tasks)
    if cell.attack.kind is AttackKind.NONE:
        yield from ((user, None) for user in users)
    elif cell.attack.kind is AttackKind.DENIAL_OF_SERVICE:
        # AgentDojo runs these with the first injection task only: the goal plays no part.
        yield from ((user, next(iter(suite.injection_tasks))) for user in users)
    else:
        yield from product(users, _kept(suite.injection_tasks, cell.settings.injection_tasks))


def _case(cell: Cell, suite: str, user_task: str, injection_task: str | None, epoch: int) -> Case:
    labels = cell.settings.labels
    return Case(
        benchmark=cell.benchmark.name,
        version=cell.benchmark.version,
        suite=suite,
        user_task_id=user_task,
        injection_task_id=injection_task,
        attack=labels["attack"],
        model=labels["model"],
        defense=labels["defense"],
        epoch=epoch,
    )


def _spread(pairs: list[Pair], limit: int | None) -> list[Pair]:
    """At most `limit` pairs that meet as many user tasks as can be, and injection tasks in turn.

    Walking the grid along its diagonals does both; even steps through the list would not: 10 of Travel's
    20 x 7 pairs, 14 apart, would all have one injection task.
    """
    if limit is None or limit >= len(pairs):
        return pairs
    users = list(dict.fromkeys(user for user, _ in pairs))
    injections = list(dict.fromkeys(injection for _, injection in pairs))
    if limit < len(users):
        users = [users[i * len(users) // limit] for i in range(limit)]
    rounds = product(range(len(injections)), enumerate(users))
    chosen = [(user, injections[(place + shift) % len(injections)]) for shift, (place, user) in rounds]
    kept = set(chosen[:limit])
    return [pair for pair in pairs if pair in kept]


def _kept(ids: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    return [task for task in ids if wanted is None or task in wanted]


def _wanted(kind: str, wanted: Sequence[str] | None, known: Sequence[Sequence[str]]) -> list[str]:
    names = {name: None for names in known for name in names}
    for name in wanted or ():
        if name not in names:
            raise ConfigError(unknown_name(kind, name, names))
    return list(names if wanted is None else dict.fromkeys(wanted))


def _check_tasks(cell: Cell, suites: Sequence[str]) -> None:
    loaded = [cell.benchmark.suite(name) for name in suites]
    for suite in loaded:
        check_abilities("suite", suite, f"suite {suite.name} of {cell.benchmark.name}")
    _wanted("user task", cell.settings.user_tasks, [list(suite.user_tasks) for suite in loaded])
    _wanted(
        "injection task", cell.settings.injection_tasks, [list(suite.injection_tasks) for suite in loaded]
    )


def stale(job: Job, old_hash: str, store: Store) -> str:
    """One line: which settings differ between the stored case and the planned one."""
    what = _differing(store.config(old_hash), job.cell.settings.identity, "there", "now")
    return (
        f"{store.root} holds {job.case.pipeline} finished under other settings: {what}. Give another"
        " logdir=..., or the settings of then, or --again: it runs the cases anew and keeps the old records"
        " aside."
    )


def _shared(first: Job, second: Job) -> str:
    """One line: two cells of a sweep differ in something that no record's name tells."""
    one, other = first.cell.settings, second.cell.settings
    what = _differing(one.identity, other.identity, "in one", "in the other")
    mend = "run them one after the other, each with a logdir=... of its own"
    if one.seed != other.seed:
        mend = f"repeat every case with epochs=2, or {mend}"
    return (
        f"Two cells of this run are both named {first.case.pipeline} / {first.case.attack} and differ only in"
        f" what no name tells: {what}. One would stand for both: {mend}."
    )


_SHOWN = {"files": "content of ", "code": "code of ", "versions": "version of "}
"""What a differing entry of these groups is called, in place of the group."""


def _differing(old: Mapping[str, Any] | None, new: Mapping[str, Any], there: str, here: str) -> str:
    """The names of what differs between two identities, at most eight of them."""
    if old is None:
        return "settings that were not kept"
    found = []
    for group in dict.fromkeys([*new, *old]):
        before, after = old.get(group, {}), new.get(group, {})
        if isinstance(before, dict) and isinstance(after, dict):
            keys = sorted(
                key for key in {*before, *after} if _plain(before.get(key)) != _plain(after.get(key))
            )
            found += [_entry(group, key, before.get(key), after.get(key), there, here) for key in keys]
        elif before != after:
            found.append(f"{group} ({before} {there}, {after} {here})")
    rest = [f"and {len(found) - 8} more"] if len(found) > 8 else []
    return ", ".join([*found[:8], *rest]) or "settings that were not kept"


def _plain(value: object) -> str:
    """A value as it is kept: stored identities come back with their keys sorted and tuples as lists."""
    return json.dumps(value, sort_keys=True, default=str)


def _entry(group: str, key: str, before: object, after: object, there: str, here: str) -> str:
    name = f"{_SHOWN.get(group, f'{group}.')}{key}"
    if (group, key) == ("model", "base_url") or group == "versions":
        return f"{name} ({before or 'not recorded'} {there}, {after or 'the default'} {here})"
    return name
