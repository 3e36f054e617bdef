"""`StoredPlan`: the cases planned into a log folder, and which of them have no record yet.

One small file per plan, named by its content: the same command writes the same file, other commands add
theirs, and what was planned is all of them together. Grids are kept as grids, not as lists of cases.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict

from agentsys.records.case import Case, make_safe_name
from agentsys.records.folder_index import Listing

PLANS_FOLDER = Path(".agentsys", "plans")
"""In the log folder."""

_CELL = ("benchmark", "version", "model", "defense", "attack", "epoch")
_cell_of = attrgetter(*_CELL)


class _PlanPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedGrid(_PlanPart):
    """User tasks of a suite, each with the same injection tasks."""

    suite: str
    user_tasks: tuple[str, ...]
    injection_tasks: tuple[str | None, ...]
    """None: the benign case."""


class PlannedCell(_PlanPart):
    """The cases of one model, defense, attack and epoch."""

    benchmark: str
    version: str
    model: str
    defense: str
    attack: str
    epoch: int = 0
    grids: tuple[PlannedGrid, ...]

    @property
    def keys(self) -> Iterator[str]:
        """Paths of its records under the log folder, as `Case.key` has them."""
        fields = self.model_dump(exclude={"grids"})
        pipeline = Case(**fields, suite="", user_task_id="", injection_task_id=None).pipeline
        attack = make_safe_name(self.attack)
        for grid in self.grids:
            for user, injection in product(grid.user_tasks, grid.injection_tasks):
                folder = f"{pipeline}/{make_safe_name(grid.suite)}/{make_safe_name(user)}/{attack}"
                yield f"{folder}/{make_safe_name(injection or 'none')}.json"


class StoredPlan(BaseModel):
    """One plan's file."""

    # Plans of earlier versions may hold more besides, which says nothing of the cases.
    model_config = ConfigDict(frozen=True, extra="ignore")

    cells: tuple[PlannedCell, ...]


def encode_plan(logdir: Path, cases: Iterable[Case]) -> tuple[Path, bytes]:
    """The place where a plan is to be kept, and the content of its file."""
    cells: defaultdict[tuple[str | int, ...], defaultdict[tuple[str, str], list[str | None]]]
    cells = defaultdict(lambda: defaultdict(list))
    for case in cases:
        by_user = cells[_cell_of(case)]
        by_user[case.suite, case.user_task_id].append(case.injection_task_id)
    found = []
    for cell, by_user in cells.items():
        grids: defaultdict[tuple[str, tuple[str | None, ...]], list[str]] = defaultdict(list)
        for (suite, user), injections in by_user.items():
            grids[suite, tuple(injections)].append(user)
        kept = tuple(
            PlannedGrid(suite=suite, user_tasks=tuple(users), injection_tasks=injections)
            for (suite, injections), users in grids.items()
        )
        found.append(PlannedCell.model_validate({**dict(zip(_CELL, cell, strict=True)), "grids": kept}))
    data = orjson.dumps(StoredPlan(cells=tuple(found)).model_dump())
    return logdir / PLANS_FOLDER / f"{hashlib.sha256(data).hexdigest()[:16]}.plan", data


def load_planned_cells(logdir: Path) -> list[PlannedCell]:
    """Everything that was ever planned into a log folder; nothing where no plan is kept or can be read."""
    found = list[PlannedCell]()
    for path in sorted((logdir / PLANS_FOLDER).glob("*.plan")):
        with suppress(OSError, ValueError):  # a newer version's, or damaged: nothing to tell
            found += StoredPlan.model_validate(orjson.loads(path.read_bytes())).cells
    return found


_DEEPEST = 5
"""Folders between a record and its log folder: pipeline, suite, user task, attack, and the file itself."""

_NAMED = 4
"""Groups that the line names."""


class UnfinishedRun(NamedTuple):
    """A log folder that lacks records."""

    logdir: str
    planned: int
    missing: dict[tuple[str, str], tuple[int, int]]
    """(model, defense) -> cases without a record, and cases planned; only groups that lack some."""

    @property
    def summary(self) -> str:
        """One line, e.g. `unfinished: 67 of 96 missing (agentsys not begun; none lacks 19)`."""
        several = len({model for model, _ in self.missing}) > 1
        parts = []
        not_begun_first = sorted(self.missing.items(), key=lambda item: (item[1][0] < item[1][1], item[0]))
        for (model, defense), (lacking, planned) in not_begun_first:
            name = f"{model} / {defense}" if several else defense
            parts.append(f"{name} not begun" if lacking == planned else f"{name} lacks {lacking}")
        rest = [f"and {len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
        count = sum(lacking for lacking, _ in self.missing.values())
        return f"unfinished: {count} of {self.planned} missing ({'; '.join([*parts[:_NAMED], *rest])})."


def find_unfinished(
    paths: Iterable[Path], logdirs: Iterable[Path] = (), listings: Sequence[Listing] = ()
) -> tuple[UnfinishedRun, ...]:
    """Find what is missing under some paths, by the plans kept in their log folders.

    Args:
        paths: Paths as given to a reader: log, pipeline or suite folders, or single files. One that does not
            exist (a pipeline not begun) counts as well.
        logdirs: Log folders that are known to lie below them.
        listings: What was seen there a moment ago; only for the rest is the disk asked.
    """
    roots = [path.absolute() for path in paths]
    above = (place for root in roots for place in (root, *root.parents[:_DEEPEST]))
    places = dict.fromkeys([*above, *(path.absolute() for path in logdirs)])
    found = [_check_logdir(place, roots, listings) for place in places if (place / PLANS_FOLDER).is_dir()]
    return tuple(one for one in found if one.missing)


def describe_unfinished(found: Iterable[UnfinishedRun]) -> list[str]:
    """A line for each log folder, which is named where there are several."""
    several = list(found)
    return [one.summary if len(several) == 1 else f"{one.logdir}: {one.summary}" for one in several]


def find_logdirs(sources: Iterable[str]) -> list[Path]:
    """The log folders of some records, if they are ours and lie where they were stored."""
    above = (source.rsplit(os.sep, _DEEPEST) for source in sources)
    return [*map(Path, dict.fromkeys(at[0] or os.sep if len(at) > _DEEPEST else "." for at in above))]


def _check_logdir(logdir: Path, roots: list[Path], listings: Sequence[Listing]) -> UnfinishedRun:
    """Count what was planned into a log folder below some paths, and what has no record."""
    inside = any(logdir.is_relative_to(root) for root in roots)
    planned: dict[str, tuple[str, str]] = {}
    for cell in load_planned_cells(logdir):
        planned |= dict.fromkeys(cell.keys, (cell.model, cell.defense))
    if not inside:
        # As text: a run of a hundred epochs has as many folders, and a Path for each pair takes seconds.
        home, asked = os.path.join(logdir, ""), tuple(os.path.join(root, "") for root in roots)  # noqa: PTH118
        planned = {key: group for key, group in planned.items() if f"{home}{key}/".startswith(asked)}
    unseen, home = {*planned}, os.path.join(logdir, "")  # noqa: PTH118
    for listing in listings:
        root = Path(listing.root).absolute()
        unseen -= {f"{root}{path[len(listing.root) :]}".removeprefix(home) for path in listing.files}
    lacking = Counter(planned[key] for key in _find_missing(logdir, unseen))
    totals = Counter(planned.values())
    groups = {group: (lacking[group], totals[group]) for group in totals if lacking[group]}
    return UnfinishedRun(str(logdir), len(planned), groups)


def _find_missing(logdir: Path, keys: Iterable[str]) -> Iterator[str]:
    """The keys without a file. Folders are listed once each: asking for every file would take far longer."""
    listed: dict[str, frozenset[str]] = {}
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in listed:
            try:
                listed[folder] = frozenset(os.listdir(logdir / folder))  # noqa: PTH208  no Path per entry
            except OSError:
                listed[folder] = frozenset()
        if name not in listed[folder]:
            yield key
