"""Settings -> cases: every pair of tasks in every cell that its attack applies to, less finished ones."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, product
from typing import Any, NamedTuple

from agentsys.base.grouping import group_by, join_names
from agentsys.contracts import AttackKind
from agentsys.errors import ConfigError, require_known_name
from agentsys.records.case_reader import WORTH_AN_INDEX
from agentsys.records.folder_index import FolderSnapshot, list_files, load_index
from agentsys.runs.cell import Cell, Job, JobBlock, JobList, TaskPair, make_file_names
from agentsys.runs.instantiate import check_abilities
from agentsys.runs.store import RecordStatus, Store

_log = logging.getLogger(__name__)

_MAX_NAMED = 5
"""Most tasks that a warning names; it counts the rest."""


class CellPairs(NamedTuple):
    """The pairs of one cell, sorted by its attack."""

    fit: Mapping[str, tuple[TaskPair, ...]]
    """Suite -> the pairs that its attack applies to."""
    unfit: frozenset[tuple[str, TaskPair]]
    """(suite, pair) of the pairs that it does not apply to."""


class ExcludedPairs(NamedTuple):
    """The pairs that one attack does not apply to."""

    attack: str
    """Label of the attack."""
    why: str
    """The words between the attack's label and the number of pairs."""
    pairs: int
    """Pairs of tasks, each counted once."""
    cases: int
    """Cases that these pairs would have been: one per defense, model and epoch."""
    empty: bool
    """True if no case of this attack is left."""

    @property
    def summary_line(self) -> str:
        """One line, e.g. `24 cases left out: injection_round+round=2 has nowhere to write in 12 pairs`."""
        cases = "1 case" if self.cases == 1 else f"{self.cases} cases"
        nothing = " (all there are: it has no case in this run)" if self.empty else ""
        return f"{cases} left out: {self.attack} {self.why} {self.counted_pairs}{nothing}."

    @property
    def counted_pairs(self) -> str:
        """The number of pairs, with its noun."""
        return "1 pair" if self.pairs == 1 else f"{self.pairs} pairs"


def find_applicable_pairs(cell: Cell, pairs: Mapping[str, Sequence[TaskPair]]) -> CellPairs:
    """Sort a cell's pairs by its attack's `applies_to`.

    A user task that its suite lists in `without_vectors` has no attacked pairs at all.
    """
    fit: dict[str, tuple[TaskPair, ...]] = {}
    unfit: set[tuple[str, TaskPair]] = set()
    for name, listed in pairs.items():
        suite = cell.benchmark.suite(name)
        # Once for all pairs: AgentDojo's suites look for the version of each task whenever they are asked.
        users, injections = suite.user_tasks, suite.injection_tasks
        fit[name] = tuple(
            (user, injection)
            for user, injection in listed
            if injection is None
            or (
                user not in suite.without_vectors
                and cell.attack.applies_to(suite, users[user], injections[injection])
            )
        )
        unfit |= {(name, pair) for pair in set(listed).difference(fit[name])}
    return CellPairs(fit, frozenset(unfit))


def sum_excluded(cells: Sequence[tuple[Cell, CellPairs]]) -> tuple[ExcludedPairs, ...]:
    """Sum up the pairs that several cells leave out, per attack, in the order of the cells."""
    sums = []
    for label, members in group_by(cells, lambda cell: cell[0].settings.labels["attack"]).items():
        attack, unfit = members[0][0].attack, frozenset().union(*(pairs.unfit for _, pairs in members))
        if unfit:
            cases = sum(len(pairs.unfit) * cell.settings.epochs for cell, pairs in members)
            empty = not any(fitting for _, pairs in members for fitting in pairs.fit.values())
            sums.append(ExcludedPairs(label, attack.left_out, len(unfit), cases, empty))
    return tuple(sums)


def format_nothing_left_message(skipped: Sequence[ExcludedPairs]) -> str:
    """Format the error for a run in which no case is left."""
    first = skipped[0]
    more = f" (nor is there a case of the other {len(skipped) - 1} attacks)" if len(skipped) > 1 else ""
    return (
        f"No case to run: attack {first.attack} {first.why} {first.counted_pairs}, and no other was"
        f" chosen{more}. Choose other suites, user_tasks or injection_tasks, or another attack."
    )


@dataclass(frozen=True)
class Plan:
    """The cases of a run."""

    jobs: JobList
    """Every case, finished ones included, in order."""
    open_jobs: JobList
    """The cases to run now."""
    finished: int
    """Number of cases that are already stored."""
    failed_before: int
    """Number of cases among `open_jobs` whose record is an error."""
    corrupt: tuple[str, ...]
    """Keys of records that did not parse; their cases are run again."""
    skipped: tuple[ExcludedPairs, ...] = ()
    """The excluded pairs of each attack that has any."""
    replaced: int = 0
    """Number of cases among `open_jobs` that are run anew; their records are set aside first."""
    index_table: FolderSnapshot | None = None
    """Snapshot of the log folder; None for a small plan, and if cases are left to run, which will change it."""

    def replace_cells(self, change: Callable[[Cell], Cell | None]) -> Plan:
        """Copy the plan with changed cells; if `change` returns None, the cell's cases are dropped."""
        by_id = {id(cell): change(cell) for cell in self.jobs.cells}
        jobs, open_jobs = (
            some.replace_cells(lambda cell: by_id[id(cell)]) for some in (self.jobs, self.open_jobs)
        )
        return replace(self, jobs=jobs, open_jobs=open_jobs, finished=len(jobs) - len(open_jobs))


def plan_cases(cells: Sequence[Cell], store: Store, *, again: bool = False) -> Plan:
    """Expand cells into cases and drop the finished ones.

    A case counts as finished only under its own configuration. A case that ended in an error may be run under
    another one: the error's cause may be the very setting that was corrected since.

    Raises:
        ConfigError: If tasks are unknown, if finished cases were made under another configuration, or if
            two cells of different configurations would write the same records.
    """
    fitting = [(cell, _find_cell_pairs(cell)) for cell in cells]
    skipped = sum_excluded(fitting) if any(of_cell.unfit for _, of_cell in fitting) else ()
    _warn_unmatched(cells)
    # By cell, suite, epoch and pair.
    suites = ((cell, suite, pairs) for cell, of_cell in fitting for suite, pairs in of_cell.fit.items())
    every = (
        JobBlock(cell, suite, epoch, chosen)
        for cell, suite, pairs in suites
        for chosen in [_drop_shared_names(_spread_pairs(pairs, cell.settings.limit_per_suite))]
        for epoch in range(cell.settings.epochs)
    )
    jobs = JobList(drop_duplicates(every))
    if not jobs and skipped:
        raise ConfigError(format_nothing_left_message(skipped))
    # A pipeline without a folder has no records, so its cases need no stat each.
    begun = {name for name in jobs.pipelines if (store.root / name).exists()}
    stored = JobList(block for block in jobs.blocks if block.first.case.pipeline in begun)
    if again:
        replaced = sum(store.read_case_status(job.case).status != "missing" for job in stored)
        return Plan(jobs, jobs, 0, 0, (), skipped, replaced)
    looked, known = None, dict[str, str]()
    if len(stored) >= WORTH_AN_INDEX:  # For fewer cases reading each record is quicker.
        listing = list_files(store.root)
        looked = FolderSnapshot(listing, load_index(listing))
        known = looked.finished_hashes
    failed, corrupt = 0, list[str]()

    def is_open(job: Job) -> bool:
        nonlocal failed
        status = _find_status(job, store, known).status
        failed += status == "error"
        corrupt.extend([job.case.key] if status == "corrupt" else ())
        return status != "ok"

    looked_through = {*map(id, stored.blocks)}
    todo = JobList(
        replace(block, pairs=tuple(compress(block.pairs, map(is_open, block))))
        if id(block) in looked_through
        else block
        for block in jobs.blocks
    )
    unchanged = None if todo else looked
    return Plan(jobs, todo, len(jobs) - len(todo), failed, tuple(corrupt), skipped, index_table=unchanged)


def _find_status(job: Job, store: Store, known: Mapping[str, str]) -> RecordStatus:
    """Return the status of a stored case; `known` maps finished cases in the index to config hashes."""
    config_hash = known.get(job.case.key)
    status = store.read_case_status(job.case) if config_hash is None else RecordStatus("ok", config_hash)
    if status.status == "ok" and status.config_hash != job.cell.config_hash:
        raise ConfigError(format_stale_message(job, status.config_hash, store))
    return status


def _drop_shared_names(pairs: tuple[TaskPair, ...]) -> tuple[TaskPair, ...]:
    """Drop pairs whose ids become the same file names as those of an earlier one."""
    by_names: dict[tuple[str, str], TaskPair] = {}
    for pair in pairs:
        by_names.setdefault(make_file_names(pair), pair)
    return pairs if len(by_names) == len(pairs) else tuple(by_names.values())


def drop_duplicates(blocks: Iterable[JobBlock]) -> Iterator[JobBlock]:
    """Yield the blocks without the cases of earlier ones: a cell may be named twice.

    Raises:
        ConfigError: If two cells of different configurations would write the same record.
    """
    met: defaultdict[tuple[str, ...], list[JobBlock]] = defaultdict(list)
    for block in blocks:
        if not block.pairs:
            continue
        *folder, _, attack = block.first.case.key.split("/")[:4]
        others = met[*folder, attack]
        left = block
        for other in others:
            left = _drop_cases_of(other, left)
        others.append(left)
        yield left


def _drop_cases_of(earlier: JobBlock, block: JobBlock) -> JobBlock:
    by_names = {make_file_names(pair): pair for pair in earlier.pairs}
    shared = [pair for pair in block.pairs if make_file_names(pair) in by_names]
    if shared and earlier.cell.config_hash != block.cell.config_hash:
        first = replace(earlier, pairs=[by_names[make_file_names(shared[0])]]).first
        raise ConfigError(_format_shared_record_message(first, replace(block, pairs=shared).first))
    return replace(block, pairs=[pair for pair in block.pairs if pair not in shared]) if shared else block


def _warn_unmatched(cells: Iterable[Cell]) -> None:
    """Warn, once per attack, about tasks that it names and that no benchmark of these cells has."""
    named: dict[str, list[set[str]]] = {}
    for cell in cells:
        named.setdefault(cell.attack.name, []).append(set(cell.attack.unmatched(cell.benchmark)))
    for attack, missing_tasks in named.items():
        nowhere = sorted(set.intersection(*missing_tasks))
        if nowhere:
            which, name = join_names(nowhere, _MAX_NAMED), ascii(attack).strip("'")
            _log.warning("%s: %d texts are for tasks that are not there: %s.", name, len(nowhere), which)


def _find_cell_pairs(cell: Cell) -> CellPairs:
    """Check the names of suites and tasks, and sort the cell's pairs."""
    wanted, benchmark = cell.settings, cell.benchmark
    names = _resolve_names("suite", wanted.benchmark.get("suites"), benchmark.suite_names())
    suites = [benchmark.suite(name) for name in names]
    for suite in suites:
        check_abilities("suite", suite, f"suite {suite.name} of {benchmark.name}")
    # These two calls only check the names: a task must be in one of the suites. `_list_pairs` chooses.
    _resolve_names("user task", wanted.user_tasks, [task for suite in suites for task in suite.user_tasks])
    known = [task for suite in suites for task in suite.injection_tasks]
    _resolve_names("injection task", wanted.injection_tasks, known)
    return find_applicable_pairs(cell, {name: list(_list_pairs(cell, name)) for name in names})


def _list_pairs(cell: Cell, name: str) -> Iterator[TaskPair]:
    """List the pairs of tasks of one suite that the settings and the attack's kind choose."""
    suite = cell.benchmark.suite(name)
    chosen, chosen_injections = cell.settings.user_tasks, cell.settings.injection_tasks
    users = [task for task in suite.user_tasks if chosen is None or task in chosen]
    injections = list(suite.injection_tasks)
    if cell.attack.kind is AttackKind.NONE:
        yield from ((user, None) for user in users)
    elif cell.attack.kind is AttackKind.DENIAL_OF_SERVICE:
        # AgentDojo runs these with the first injection task only: the goal plays no part.
        yield from ((user, injections[0]) for user in users)
    else:
        wanted = [task for task in injections if chosen_injections is None or task in chosen_injections]
        yield from product(users, wanted)


def _spread_pairs(pairs: tuple[TaskPair, ...], limit: int | None) -> tuple[TaskPair, ...]:
    """Choose at most `limit` pairs that cover as many user tasks as possible, and injection tasks in turn.

    The grid is walked along its diagonals. Even steps through the list would not do: 10 of Travel's 20 x 7 pairs,
    14 apart, would all have the same injection task.
    """
    if limit is None or limit >= len(pairs):
        return pairs
    users = list(dict.fromkeys(user for user, _ in pairs))
    injections = list(dict.fromkeys(injection for _, injection in pairs))
    if limit < len(users):
        users = [users[i * len(users) // limit] for i in range(limit)]
    rounds = product(range(len(injections)), enumerate(users))
    chosen = [(user, injections[(number + shift) % len(injections)]) for shift, (number, user) in rounds]
    kept = set(chosen[:limit])
    return tuple(pair for pair in pairs if pair in kept)


def _resolve_names(kind: str, wanted: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    each_once = dict.fromkeys(known)
    for name in wanted or ():
        require_known_name(kind, name, each_once)
    return list(each_once if wanted is None else dict.fromkeys(wanted))


def format_stale_message(job: Job, old_hash: str, store: Store) -> str:
    """Format the error for a stored case whose settings differ from the planned ones."""
    what = _describe_differences(
        store.load_config_of_hash(old_hash), job.cell.settings.identity, "there", "now"
    )
    return (
        f"{store.root} holds {job.case.pipeline} finished under other settings: {what}. Give another"
        " logdir=..., or the settings of then, or --again: it runs the cases anew and keeps the old records"
        " aside."
    )


def _format_shared_record_message(first: Job, second: Job) -> str:
    settings, other = first.cell.settings, second.cell.settings
    what = _describe_differences(settings.identity, other.identity, "in one", "in the other")
    mend = "run them one after the other, each with a logdir=... of its own"
    if settings.seed != other.seed:
        mend = f"repeat every case with epochs=2, or {mend}"
    return (
        f"Two cells of this run are both named {first.case.pipeline} / {first.case.attack} and differ only in"
        f" what no name tells: {what}. One would stand for both: {mend}."
    )


_GROUP_LABELS = {
    "files": "content of ",
    "code": "code of ",
    "versions": "version of ",
    "packages": "package ",
}
"""Identity group -> the words before a differing entry, in place of the group's name."""


def _describe_differences(
    old: Mapping[str, Any] | None, new: Mapping[str, Any], there: str, here: str
) -> str:
    """Name the differences between two identities, at most eight of them."""
    if old is None:
        return "settings that were not kept"
    differences = list_differences(old, new, there, here)
    rest = [f"and {len(differences) - 8} more"] if len(differences) > 8 else []
    return ", ".join([*differences[:8], *rest]) or "settings that were not kept"


def list_differences(
    old: Mapping[str, Any], new: Mapping[str, Any], there: str = "then", here: str = "now"
) -> list[str]:
    """List the names of all differing entries of two identities."""
    differences = []
    for group in dict.fromkeys([*new, *old]):
        before, after = old.get(group, {}), new.get(group, {})
        if isinstance(before, dict) and isinstance(after, dict):
            keys = sorted(
                key
                for key in {*before, *after}
                if _format_sorted_json(before.get(key)) != _format_sorted_json(after.get(key))
            )
            differences += [
                _describe_entry(group, key, before.get(key), after.get(key), there, here) for key in keys
            ]
        elif before != after:
            differences.append(f"{group} ({before} {there}, {after} {here})")
    return differences


def _format_sorted_json(value: object) -> str:
    """Format a value for comparison with a stored identity, whose keys are sorted and whose tuples are lists."""
    return json.dumps(value, sort_keys=True, default=str)


def _describe_entry(group: str, key: str, before: object, after: object, there: str, here: str) -> str:
    name = f"{_GROUP_LABELS.get(group, f'{group}.')}{key}"
    if (group, key) == ("model", "base_url") or group in ("versions", "packages"):
        return f"{name} ({before or 'not recorded'} {there}, {after or 'the default'} {here})"
    return name
