"""`Session`: from overrides to a plan that is ready to execute. What the command line and notebooks call."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from agentsys.base.atomic_file import make_folder
from agentsys.base.ledger import LEDGER_FILE, Ledger
from agentsys.base.object_import import add_plugin_paths
from agentsys.contracts import NotInjectable
from agentsys.errors import ConfigError, Unavailable, find_missing_packages, make_not_installed_error
from agentsys.models.budget import BUDGET_FILE_NAME, Meter, UsageLog
from agentsys.models.thought_text import ThoughtBlock
from agentsys.records.schema import CaseRecord
from agentsys.runs.cell import Cell, CellBuilder
from agentsys.runs.claims import Claims
from agentsys.runs.compose import compose
from agentsys.runs.plan import Job, Plan, list_cells, plan_cases
from agentsys.runs.preflight import BlockedCell, find_unreachable_cells, make_refusal_error, run_reading_tests
from agentsys.runs.run_totals import Listener, RunOutcome
from agentsys.runs.search_plan import check_searches, list_attempt_folders, make_artefact_path
from agentsys.runs.settings import ExecutorKind, Settings
from agentsys.runs.store import (
    Store,
    StoreError,
    store_code_state,
    store_inferred_blocks,
    store_recipe,
)


@dataclass(frozen=True)
class RunRequest:
    """What a run was asked for, as the command line has it."""

    overrides: tuple[str, ...] = ()
    config_dirs: tuple[Path, ...] = ()
    plugin_paths: tuple[Path, ...] = ()
    skip_unavailable: bool = False


@dataclass(frozen=True)
class Session:
    """A planned run."""

    settings: tuple[Settings, ...]
    """One per cell."""
    store: Store
    plan: Plan
    again: bool = False
    """Whether every case is run anew, finished or not."""
    books: UsageLog | None = None
    """Where its requests are booked; None in a rehearsal."""
    obstacles: tuple[BlockedCell, ...] = ()
    """The cells that cannot run here, and so are not in the plan (in a rehearsal: would not be)."""
    oddities: tuple[str, ...] = ()
    """What the look at the models' servers found besides."""
    request: RunRequest = RunRequest()
    """What it was asked for, which other processes are asked for too."""

    @property
    def cells(self) -> list[Cell]:
        """The cells of which cases are left to run."""
        return list_cells(self.plan.open_jobs)

    @cached_property
    def folders(self) -> list[Path]:
        """The pipeline folders this run writes: what its tables are made of."""
        return [self.store.root / name for name in dict.fromkeys(job.case.pipeline for job in self.plan.jobs)]

    @property
    def artefacts(self) -> list[Path]:
        """The files with what this run's searches found, as far as they exist."""
        searched = (job for job in self.plan.jobs if job.needs_search)
        paths = dict.fromkeys(make_artefact_path(self.store, job) for job in searched)
        return [path for path in paths if path.is_file()]

    def execute(self, listener: Listener) -> RunOutcome:
        """Run what is missing; before that, what is run anew is kept aside.

        Raises:
            StoreError: If the log folder cannot be written.
            ConfigError: If all is to be run anew while another process runs it.
        """
        books = self.books
        budget_file = self.store.own / BUDGET_FILE_NAME
        shared = nullcontext() if books is None else books.meter.share_budget(budget_file)
        with Claims(self.store) as claims, shared:
            todo = self.plan.open_jobs
            others = claims.find_living_processes() if self.again else claims.list_other_processes()
            if others:
                listener.on_processes_joined([process.pid for process in others])
            if self.again:
                if others:
                    raise ConfigError(
                        f"Process {others[0].pid} is at work in {self.store.root}, and --again would set its"
                        " records aside: let it finish first."
                    )
                set_records_aside(self.plan.jobs, self.store)
            self.store.store_plan(job.case for job in self.plan.jobs)
            for settings in self.settings:
                self.store.store_config(settings.config_hash, settings.identity)
                store_recipe(self.store, settings)
            return self._run(claims, listener) if todo else RunOutcome(finished=0, errors=0)

    def _run(self, claims: Claims, listener: Listener) -> RunOutcome:
        # Here: a run in which nothing is left to do needs nothing that runs cases.
        from agentsys.runs.executors import run_on_nodes, run_on_threads

        store_code_state(self.store)
        executor, jobs, store = self.settings[0].executor, self.plan.open_jobs, self.store
        meter = None if self.books is None else self.books.meter
        if executor.kind is ExecutorKind.RAY:
            hashes = frozenset(one.config_hash for one in self.settings)
            work = partial(run_as_node, self.request, executor.workers, hashes)
            return run_on_nodes(work, jobs, executor, store=store, listener=listener, meter=meter)
        for cell in self.cells:
            cell.warm_up()
        workers = executor.workers
        return run_on_threads(
            jobs, workers=workers, store=store, claims=claims, listener=listener, meter=meter
        )

    def drop_cells(self, obstacles: Sequence[BlockedCell]) -> Session:
        """The same run less some cells."""
        gone = {id(obstacle.settings) for obstacle in obstacles}
        plan = self.plan.replace_cells(lambda cell: None if id(cell.settings) in gone else cell)
        if plan.failed_before:
            failed = sum(self.store.read_case_status(job.case).status == "error" for job in plan.open_jobs)
            plan = replace(plan, failed_before=failed)
        left = tuple(one for one in self.settings if id(one) not in gone)
        return replace(self, settings=left, plan=plan, obstacles=tuple(obstacles))

    def preflight(self, *, skip_unavailable: bool = False) -> Session:
        """Ask every model that the run needs one small question (`preflight=false`: none).

        Raises:
            ConfigError: If some cannot be used, and their cells are not to be left out.
        """
        asked = [cell for cell in self.cells if cell.stack.list_probe_models()]
        if not asked or not self.settings[0].preflight:
            return self
        obstacles, oddities, thoughts = find_unreachable_cells(asked, self.books)
        if obstacles and (not skip_unavailable or len(obstacles) == len(self.cells)):
            raise make_refusal_error(obstacles, len(self.settings))
        looked = self.drop_cells([*self.obstacles, *obstacles]) if obstacles else self
        return replace(looked, oddities=tuple(oddities))._split_thoughts(thoughts)._note_readings()

    def _split_thoughts(self, found: Mapping[str, ThoughtBlock]) -> Session:
        """The same run, in which thoughts are taken off the texts of models that were seen to begin with some."""
        if not found:
            return self
        store_inferred_blocks(self.store, found)
        stacks = {id(cell.stack): cell.stack.split_thoughts(found) for cell in self.cells}  # shared by cells
        plan = self.plan.replace_cells(
            lambda cell: replace(cell, stack=stacks.get(id(cell.stack), cell.stack))
        )
        return replace(self, plan=plan)

    def _note_readings(self) -> Session:
        """The same run, in which the cells whose attack has to be read know whether the model can."""
        notes, unread = run_reading_tests(self.cells, self.books)
        plan = self.plan.replace_cells(
            lambda cell: replace(cell, notes=(notes[id(cell)],)) if id(cell) in notes else cell
        )
        return replace(self, plan=plan, oddities=(*self.oddities, *unread))


def prepare_session(
    overrides: Sequence[str],
    *,
    config_dirs: Sequence[Path] = (),
    plugin_paths: Sequence[Path] = (),
    rehearsal: bool = False,
    again: bool = False,
    skip_unavailable: bool = False,
) -> Session:
    """Compose, build and plan a run without running anything.

    Args:
        overrides: Hydra overrides as typed on the command line; comma lists sweep.
        config_dirs: The user's own config folders.
        plugin_paths: Folders the user's own modules are imported from.
        rehearsal: Whether the simulated model stands in for every model (a dry run needs no key). Such
            a session is for estimates; it must not be executed.
        again: Whether finished cases are run anew too.
        skip_unavailable: Whether cells that cannot run here are left out; else they are refused.

    Raises:
        ConfigError: For anything the user can mend.
    """
    add_plugin_paths(plugin_paths)
    settings = compose(overrides, config_dirs)
    _check_run(settings)
    store = Store(settings[0].logdir, settings[0].store.mode)
    books = None if rehearsal else UsageLog(Meter(settings[0].budget), Ledger(store.own / LEDGER_FILE))
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=rehearsal, books=books)
    cells, obstacles = list[Cell](), list[BlockedCell]()
    for one in settings:
        try:
            cells.append(builder.build(one))
        except Unavailable as error:  # a key is missing, say
            obstacles.append(BlockedCell(one, error))
    if len(obstacles) == len(settings):
        raise make_refusal_error(obstacles, len(settings))
    _check_prices(cells)
    found = plan_cases(cells, store, again=again)
    # What is finished needs nothing any more.
    waiting = {id(cell) for cell in list_cells(found.open_jobs)}
    obstacles += [BlockedCell(c.settings, lack) for c in cells if id(c) in waiting for lack in c.lacks]
    if found.searched and not again:
        check_searches(found.searched, store)
    session = Session(
        tuple(settings),
        store,
        found,
        again,
        books,
        tuple(obstacles),
        request=RunRequest(tuple(overrides), tuple(config_dirs), tuple(plugin_paths), skip_unavailable),
    )
    if rehearsal or not obstacles:
        return session
    if not skip_unavailable:
        raise make_refusal_error(obstacles, len(settings))
    return session.drop_cells(obstacles)


class _SilentListener(Listener):
    def on_case_stored(self, record: CaseRecord) -> None:
        """Nothing: what is stored is seen from the log folder."""


def run_as_node(request: RunRequest, workers: int, hashes: frozenset[str]) -> RunOutcome:
    """Run what was asked for on threads of this process, as one of several on the log folder.

    A node with other code or versions finds other hashes of cells than the command did.

    Raises:
        ConfigError: If it cannot be run on this node.
    """
    kept = [text for text in request.overrides if not re.match(r"[+~]*executor\b", text)]
    session = prepare_session(
        [*kept, "executor=threads", f"executor.workers={workers}"],
        config_dirs=request.config_dirs,
        plugin_paths=request.plugin_paths,
        skip_unavailable=request.skip_unavailable,
    )
    if not {one.config_hash for one in session.settings} <= hashes:
        raise ConfigError("it finds other package versions than the command: install the same on every node.")
    return session.preflight(skip_unavailable=request.skip_unavailable).execute(_SilentListener())


def _check_run(settings: Sequence[Settings]) -> None:
    """What holds for a whole run must be the same in all of its cells."""
    if len({s.logdir for s in settings}) > 1 or len({s.executor for s in settings}) > 1:
        raise ConfigError("logdir and executor hold for a whole run; give each one value.")
    if len({(s.budget, s.preflight, s.cache) for s in settings}) > 1:
        raise ConfigError("budget, preflight and cache hold for a whole run; give each one value.")
    if settings[0].executor.kind is ExecutorKind.RAY and (absent := find_missing_packages(["ray"])):
        raise make_not_installed_error("executor=ray", absent, "distributed")


def _check_prices(cells: Sequence[Cell]) -> None:
    """Dollars can be counted only where every model has a price."""
    for cell in cells:
        unpriced = [card.name for card in cell.stack.cards if card.price is None and not card.simulated]
        if cell.books is not None and cell.settings.budget.usd is not None and unpriced:
            raise ConfigError(
                f"budget.usd needs a price, and model '{unpriced[0]}' has none: give it one in its YAML "
                "(price: {prompt: ..., completion: ..., as_of: ...}), or set budget.tokens instead."
            )


def set_records_aside(jobs: Iterable[Job], store: Store) -> Path | None:
    """Move what is stored of some cases, their searches included, out of the readers' sight.

    Returns:
        The folder it is in now, under the same paths as before; None if nothing was stored.

    Raises:
        StoreError: If a file cannot be moved. Those moved before stay where they are now.
    """
    stored = list(dict.fromkeys(path for path in _list_stored_paths(jobs, store) if path.exists()))
    if not stored:
        return None
    folder = _find_new_aside_folder(store)
    try:
        for path in stored:
            target = folder / path.relative_to(store.root)
            make_folder(target.parent)
            with suppress(FileNotFoundError):  # another process was faster
                path.rename(target)
    except OSError as error:
        raise StoreError(
            f"Cannot keep the old records aside in {folder}: {error.strerror}. Give another logdir=..."
        ) from None
    return folder


def _list_stored_paths(jobs: Iterable[Job], store: Store) -> Iterator[Path]:
    for job in jobs:
        yield store.root / job.case.key
        if job.needs_search:
            yield make_artefact_path(store, job)
            try:
                yield from (store.root / folder for folder in list_attempt_folders(job))
            except NotInjectable:
                continue


def _find_new_aside_folder(store: Store) -> Path:
    """A folder of this moment. A second process in the same second takes the next name."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = store.own / "aside" / (moment if number == 1 else f"{moment}-{number}")
        if not folder.exists():
            return folder
    raise StoreError(f"{store.own / 'aside'} is full; give another logdir=...")
