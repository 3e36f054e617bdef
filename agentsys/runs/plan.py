"""Settings -> cases: every pair of tasks of every cell, less what is finished."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

from agentsys.abilities import NamesTasks
from agentsys.contracts import AttackKind
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case import safe_name
from agentsys.records.case_reader import WORTH_AN_INDEX
from agentsys.records.folder_index import FolderSnapshot, load_index
from agentsys.records.listing import list_files
from agentsys.runs.cell import Cell
from agentsys.runs.instantiate import check_abilities
from agentsys.runs.jobs import (
    CellPairs,
    ExcludedPairs,
    Job,
    JobBlock,
    Jobs,
    TaskPair,
    find_applicable_pairs,
    nothing_left_message,
    sum_excluded,
)
from agentsys.runs.store import RecordStatus, Store

__all__ = ["Job", "Jobs", "Plan", "plan_cases", "stale_message"]

_log = logging.getLogger(__name__)

_MAX_NAMED = 5
"""Tasks that a warning names; of others it gives the number."""


@dataclass(frozen=True)
class Plan:
    """The cases that a run is to do."""

    jobs: Jobs
    """Every case, finished ones included, in order."""
    todo: Jobs
    """The cases to run now."""
    finished: int
    """Cases whose record is already there."""
    failed_before: int
    """Cases among `todo` whose record is an error."""
    corrupt: tuple[str, ...]
    """Files that did not parse; their cases are run again."""
    skipped: tuple[ExcludedPairs, ...] = ()
    """What attacks do not apply to, one per attack that leaves something out."""
    replaced: int = 0
    """Cases among `todo` whose record is kept aside first, as they are run anew."""
    looked: FolderSnapshot | None = None
    """The log folder as it was looked at; None for a small plan, and where cases are left that add to it."""


def plan_cases(cells: Sequence[Cell], store: Store, *, again: bool = False) -> Plan:
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
    known: dict[tuple[TaskPair, ...], tuple[TaskPair, ...]] = {}
    sorted_out = [(cell, _share_pairs(_find_cell_pairs(cell), known)) for cell in cells]
    skipped = sum_excluded(sorted_out)
    _warn_unmatched(cells)
    planned = Jobs(block for cell, pairs in sorted_out for block in _make_blocks(cell, pairs, known))
    jobs = Jobs(_drop_duplicates(planned.blocks))
    if not jobs and skipped:
        raise ConfigError(nothing_left_message(skipped))
    begun = Jobs(block for block in jobs.blocks if any(map(store.holds, block.pipelines)))
    if again:
        stored = sum(store.look(job.case).status != "missing" for job in begun)
        return Plan(jobs, jobs, 0, 0, (), skipped, stored)
    looked = _load_finished_index(store, begun)
    look = _FinishedLookup(store, {} if looked is None else looked.finished_hashes)
    open_ = {id(block): block.select(look.is_open) for block in begun.blocks}
    todo = Jobs(open_.get(id(block), block) for block in jobs.blocks)
    finished, corrupt = len(jobs) - len(todo), tuple(look.corrupt)
    unchanged = None if todo else looked
    return Plan(jobs, todo, finished, look.failed, corrupt, skipped, looked=unchanged)


def _load_finished_index(store: Store, begun: Jobs) -> FolderSnapshot | None:
    """The log folder and its index, which knows what is finished; None where each record is read instead."""
    if len(begun) < WORTH_AN_INDEX:
        return None
    listing = list_files(store.root)
    return FolderSnapshot(listing, load_index(listing))


class _FinishedLookup:
    """What is found of the cases that may be finished."""

    def __init__(self, store: Store, finished: Mapping[str, str]) -> None:
        self._store, self._finished = store, finished
        self.failed = 0
        self.corrupt: list[str] = []

    def is_open(self, job: Job) -> bool:
        """Whether a case is to be run."""
        known = self._finished.get(job.case.key) if self._finished else None
        found = self._store.look(job.case) if known is None else RecordStatus("ok", known)
        if found.status == "ok":
            if not job.cell.made(found.config_hash):
                raise ConfigError(stale_message(job, found.config_hash, self._store))
            return False
        self.failed += found.status == "error"
        if found.status == "corrupt":
            self.corrupt.append(job.case.key)
        return True


def _drop_duplicates(blocks: Sequence[JobBlock]) -> Iterator[JobBlock]:
    """The blocks, every case of them in one; a cell that is named twice is one cell.

    Keys are made and kept only where two cases might share one: a million of them take a third of a GB.
    """
    folders = [[(name, safe_name(b.suite), safe_name(b.labels[2])) for name in b.pipelines] for b in blocks]
    met, unseen = Counter(chain.from_iterable(folders)), _FirstSeen()
    for block, places in zip(blocks, folders, strict=True):
        alone = all(met[place] == 1 for place in places) and not _has_name_clash(block.pairs)
        yield block if alone else block.select(unseen.first)


def _has_name_clash(pairs: Sequence[TaskPair]) -> bool:
    """Whether several tasks of one suite have one name on the disk."""
    users, injections = ({one[side] or "none" for one in pairs} for side in (0, 1))
    return any(len(set(map(safe_name, names))) < len(names) for names in (users, injections))


class _FirstSeen:
    """Tells the first of several cases that would have one record."""

    def __init__(self) -> None:
        self._found: dict[str, Job] = {}
        self._compared: set[tuple[int, int]] = set()

    def first(self, job: Job) -> bool:
        """Whether no case before had this one's record.

        Raises:
            ConfigError: If one had, of a cell that was made under another configuration.
        """
        first = self._found.setdefault(job.case.key, job)
        cells = id(first.cell), id(job.cell)
        if first.cell is not job.cell and cells not in self._compared:
            self._compared.add(cells)
            if first.cell.config_hash != job.cell.config_hash:
                raise ConfigError(_shared_record_message(first, job))
        return first is job


def _warn_unmatched(cells: Iterable[Cell]) -> None:
    """Warn, once per attack, of tasks it was told by name and that no benchmark of these has."""
    named: dict[str, list[set[str]]] = {}
    for cell in cells:
        if isinstance(cell.attack, NamesTasks):
            named.setdefault(cell.attack.name, []).append(set(cell.attack.unmatched(cell.benchmark)))
    for attack, found in named.items():
        nowhere = sorted(set.intersection(*found))
        if nowhere:
            more = f" and {len(nowhere) - _MAX_NAMED} more" if len(nowhere) > _MAX_NAMED else ""
            which, name = f"{', '.join(nowhere[:_MAX_NAMED])}{more}", ascii(attack).strip("'")
            _log.warning("%s: %d texts are for tasks that are not there: %s.", name, len(nowhere), which)


def _find_cell_pairs(cell: Cell) -> CellPairs:
    """The pairs of a cell that its attack applies to, and the others."""
    names = _resolve_names("suite", cell.settings.benchmark.get("suites"), [cell.benchmark.suite_names()])
    _check_tasks(cell, names)
    return find_applicable_pairs(cell, {name: list(_list_pairs(cell, name)) for name in names})


def _share_pairs(pairs: CellPairs, known: dict[tuple[TaskPair, ...], tuple[TaskPair, ...]]) -> CellPairs:
    """The same pairs, as other cells have them already: a thousand cells mostly plan the same."""
    return replace(pairs, fit={name: known.setdefault(fit, fit) for name, fit in pairs.fit.items()})


def _make_blocks(
    cell: Cell, found: CellPairs, known: dict[tuple[TaskPair, ...], tuple[TaskPair, ...]]
) -> Iterator[JobBlock]:
    for name, fitting in found.fit.items():
        pairs = _spread_pairs(fitting, cell.settings.limit)
        yield JobBlock(cell, name, known.setdefault(pairs, pairs), range(cell.settings.epochs))


def _list_pairs(cell: Cell, name: str) -> Iterator[TaskPair]:
    suite = cell.benchmark.suite(name)
    users = _filter_ids(suite.user_tasks, cell.settings.user_tasks)
    if cell.attack.kind is AttackKind.NONE:
        yield from ((user, None) for user in users)
    elif cell.attack.kind is AttackKind.DENIAL_OF_SERVICE:
        # AgentDojo runs these with the first injection task only: the goal plays no part.
        yield from ((user, next(iter(suite.injection_tasks))) for user in users)
    else:
        yield from product(users, _filter_ids(suite.injection_tasks, cell.settings.injection_tasks))


def _spread_pairs(pairs: tuple[TaskPair, ...], limit: int | None) -> tuple[TaskPair, ...]:
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
    return tuple(pair for pair in pairs if pair in kept)


def _filter_ids(ids: Iterable[str], wanted: Sequence[str] | None) -> list[str]:
    return [task for task in ids if wanted is None or task in wanted]


def _resolve_names(kind: str, wanted: Sequence[str] | None, known: Sequence[Sequence[str]]) -> list[str]:
    names = {name: None for names in known for name in names}
    for name in wanted or ():
        if name not in names:
            raise ConfigError(unknown_name(kind, name, names))
    return list(names if wanted is None else dict.fromkeys(wanted))


def _check_tasks(cell: Cell, suites: Sequence[str]) -> None:
    loaded = [cell.benchmark.suite(name) for name in suites]
    for suite in loaded:
        check_abilities("suite", suite, f"suite {suite.name} of {cell.benchmark.name}")
    _resolve_names("user task", cell.settings.user_tasks, [list(suite.user_tasks) for suite in loaded])
    _resolve_names(
        "injection task", cell.settings.injection_tasks, [list(suite.injection_tasks) for suite in loaded]
    )


def stale_message(job: Job, old_hash: str, store: Store) -> str:
    """One line: which settings differ between the stored case and the planned one."""
    what = _describe_differences(store.config(old_hash), job.cell.settings.identity, "there", "now")
    return (
        f"{store.root} holds {job.case.pipeline} finished under other settings: {what}. Give another"
        " logdir=..., or the settings of then, or --again: it runs the cases anew and keeps the old records"
        " aside."
    )


def _shared_record_message(first: Job, second: Job) -> str:
    """One line: two cells of a sweep differ in something that no record's name tells."""
    one, other = first.cell.settings, second.cell.settings
    what = _describe_differences(one.identity, other.identity, "in one", "in the other")
    mend = "run them one after the other, each with a logdir=... of its own"
    if one.seed != other.seed:
        mend = f"repeat every case with epochs=2, or {mend}"
    return (
        f"Two cells of this run are both named {first.case.pipeline} / {first.case.attack} and differ only in"
        f" what no name tells: {what}. One would stand for both: {mend}."
    )


_GROUP_LABELS = {"files": "content of ", "code": "code of ", "versions": "version of "}
"""What a differing entry of these groups is called, in place of the group."""


def _describe_differences(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], there: str, here: str
) -> str:
    """The names of what differs between two identities, at most eight of them."""
    if old is None:
        return "settings that were not kept"
    found = list_differences(old, new, there, here)
    rest = [f"and {len(found) - 8} more"] if len(found) > 8 else []
    return ", ".join([*found[:8], *rest]) or "settings that were not kept"


def list_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], there: str = "then", here: str = "now"
) -> list[str]:
    """The names of all that differs between two identities."""
    found = []
    for group in dict.fromkeys([*new, *old]):
        before, after = old.get(group, {}), new.get(group, {})
        if isinstance(before, dict) and isinstance(after, dict):
            keys = sorted(
                key for key in {*before, *after} if _to_json(before.get(key)) != _to_json(after.get(key))
            )
            found += [
                _describe_entry(group, key, before.get(key), after.get(key), there, here) for key in keys
            ]
        elif before != after:
            found.append(f"{group} ({before} {there}, {after} {here})")
    return found


def _to_json(value: object) -> str:
    """A value as it is kept: stored identities come back with their keys sorted and tuples as lists."""
    return json.dumps(value, sort_keys=True, default=str)


def _describe_entry(group: str, key: str, before: object, after: object, there: str, here: str) -> str:
    name = f"{_GROUP_LABELS.get(group, f'{group}.')}{key}"
    if (group, key) == ("model", "base_url") or group == "versions":
        return f"{name} ({before or 'not recorded'} {there}, {after or 'the default'} {here})"
    return name
