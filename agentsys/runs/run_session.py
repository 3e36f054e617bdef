"""`Session`: turns overrides into a plan and executes it, for the command line and notebooks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentsys.base.atomic_file import make_folder
from agentsys.base.ledger import LEDGER_FILE, Ledger
from agentsys.base.object_import import add_plugin_paths
from agentsys.contracts import NotInjectable
from agentsys.errors import ConfigError, Unavailable, find_missing_packages, make_not_installed_error
from agentsys.models.budget import BUDGET_FILE_NAME, Meter, UsageLog
from agentsys.models.thought_text import ThoughtBlock
from agentsys.records.schema import CaseRecord
from agentsys.records.stored_plan import encode_plan
from agentsys.runs.cell import Cell, CellBuilder, Job
from agentsys.runs.claims import Claims
from agentsys.runs.compose import compose
from agentsys.runs.plan import Plan, plan_cases
from agentsys.runs.preflight import BlockedCell, find_unreachable_cells, make_refusal_error, run_reading_tests
from agentsys.runs.run_totals import Listener, RunOutcome
from agentsys.runs.search_plan import check_searches, list_attempt_folders, make_artefact_path
from agentsys.runs.settings import ExecutorKind, Settings
from agentsys.runs.store import (
    Store,
    StoreError,
    store_code_state,
    store_recipe,
)

if TYPE_CHECKING:
    from agentsys.runs.executors import CaseRunner, RunContext


@dataclass(frozen=True)
class RunRequest:
    """Arguments of a run, as on the command line."""

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
    """True: every case is run anew, also finished ones."""
    usage_log: UsageLog | None = None
    """Log of the run's requests and their cost; None in a rehearsal."""
    unavailable_cells: tuple[BlockedCell, ...] = ()
    """The cells that cannot run here and are left out of the plan (in a rehearsal: would be)."""
    preflight_warnings: tuple[str, ...] = ()
    """Warnings from the check of the models' servers."""
    request: RunRequest = RunRequest()
    """The arguments, for other processes that take part in the run."""

    @property
    def cells(self) -> list[Cell]:
        """The cells that have cases left to run."""
        return self.plan.open_jobs.cells

    @cached_property
    def folders(self) -> list[Path]:
        """The pipeline folders that this run writes and its tables read."""
        return [self.store.root / name for name in self.plan.jobs.pipelines]

    @property
    def artefacts(self) -> list[Path]:
        """The existing files with the results of this run's searches."""
        paths = dict.fromkeys(make_artefact_path(self.store, job) for job in self.plan.jobs.searched)
        return [path for path in paths if path.is_file()]

    def execute(self, listener: Listener) -> RunOutcome:
        """Run the open cases; with `again`, set their old records aside first.

        Raises:
            StoreError: If the log folder cannot be written.
            ConfigError: With `again`, if another process works in the log folder.
        """
        usage_log = self.usage_log
        budget_file = self.store.own / BUDGET_FILE_NAME
        shared = nullcontext() if usage_log is None else usage_log.meter.share_budget(budget_file)
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
            # Readers name the planned cases that have no record.
            self.store.keep_file(*encode_plan(self.store.root, (job.case for job in self.plan.jobs)))
            for settings in self.settings:
                self.store.store_config(settings.config_hash, settings.identity)
                store_recipe(self.store, settings)
            return self._run(claims, listener) if todo else RunOutcome(finished=0, errors=0)

    def _run(self, claims: Claims, listener: Listener) -> RunOutcome:
        """Run the open cases with the chosen executor."""
        # Imported here, so that a run with nothing left to do starts quickly.
        from agentsys.runs.executors import PlainRunner, run_on_threads

        store_code_state(self.store)
        executor, jobs, store = self.settings[0].executor, self.plan.open_jobs, self.store
        meter = None if self.usage_log is None else self.usage_log.meter
        if executor.kind is ExecutorKind.RAY:
            from agentsys.runs.ray_nodes import run_on_nodes

            hashes = frozenset(settings.config_hash for settings in self.settings)
            work = partial(run_as_node, self.request, executor.workers, hashes)
            return run_on_nodes(work, jobs, executor, store=store, listener=listener, meter=meter)
        self._warm_up()
        workers = executor.workers
        make_runner: Callable[[RunContext], CaseRunner] = PlainRunner
        if self.plan.open_jobs.searched:
            from agentsys.runs.search_runner import SearchRunner

            def make_runner(context: RunContext) -> CaseRunner:
                return SearchRunner(context, PlainRunner(context))

        run = partial(run_on_threads, workers=workers, store=store, claims=claims)
        return run(jobs, listener=listener, meter=meter, make_runner=make_runner)

    def _warm_up(self) -> None:
        for cell in self.cells:
            cell.warm_up()

    def drop_cells(self, unavailable_cells: Sequence[BlockedCell]) -> Session:
        """Copy the session without some cells."""
        gone = {id(blocked.settings) for blocked in unavailable_cells}
        plan = self.plan.replace_cells(lambda cell: None if id(cell.settings) in gone else cell)
        if plan.failed_before:
            failed = sum(self.store.read_case_status(job.case).status == "error" for job in plan.open_jobs)
            plan = replace(plan, failed_before=failed)
        left = tuple(settings for settings in self.settings if id(settings) not in gone)
        return replace(self, settings=left, plan=plan, unavailable_cells=tuple(unavailable_cells))

    def preflight(self, *, skip_unavailable: bool = False) -> Session:
        """Send every model that the run needs one small question (`preflight=false`: none).

        Raises:
            ConfigError: If some models cannot be used and `skip_unavailable` is False, or no cell is left.
        """
        asked = [cell for cell in self.cells if cell.stack.list_probe_models()]
        if not asked or not self.settings[0].preflight:
            return self
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._warm_up)  # While the servers think; what it raises is raised again by the run.
            unavailable_cells, preflight_warnings, thoughts = find_unreachable_cells(asked, self.usage_log)
        if unavailable_cells and (not skip_unavailable or len(unavailable_cells) == len(self.cells)):
            raise make_refusal_error(unavailable_cells, len(self.settings))
        looked = self.drop_cells([*self.unavailable_cells, *unavailable_cells]) if unavailable_cells else self
        warned = replace(looked, preflight_warnings=tuple(preflight_warnings))
        return warned._split_thoughts(thoughts)._note_readings()

    def _split_thoughts(self, blocks: Mapping[str, ThoughtBlock]) -> Session:
        """Copy the session; models whose replies were seen to begin with thoughts get them split off."""
        if not blocks:
            return self
        self.store.store_inferred_blocks(blocks)
        stacks = {id(cell.stack): cell.stack.split_thoughts(blocks) for cell in self.cells}  # shared by cells
        plan = self.plan.replace_cells(
            lambda cell: replace(cell, stack=stacks.get(id(cell.stack), cell.stack))
        )
        return replace(self, plan=plan)

    def _note_readings(self) -> Session:
        """Copy the session; cells whose attack needs a reading test get its result as a note."""
        notes, unread = run_reading_tests(self.cells, self.usage_log)
        plan = self.plan.replace_cells(
            lambda cell: replace(cell, notes=(notes[id(cell)],)) if id(cell) in notes else cell
        )
        return replace(self, plan=plan, preflight_warnings=(*self.preflight_warnings, *unread))


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
        rehearsal: True: the simulated model replaces every model (a dry run needs no key). Such a session is for
            estimates; it must not be executed.
        again: True: finished cases are run anew too.
        skip_unavailable: True: cells that cannot run here are left out; False: they are an error.

    Raises:
        ConfigError: For anything that the user can correct.
    """
    add_plugin_paths(plugin_paths)
    settings = compose(overrides, config_dirs)
    _check_run(settings)
    kept = settings[0].store
    store = Store(settings[0].logdir, kept.mode, compress=kept.compress)
    usage_log = None if rehearsal else UsageLog(Meter(settings[0].budget), Ledger(store.own / LEDGER_FILE))
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=rehearsal, usage_log=usage_log)
    cells, unavailable_cells = list[Cell](), list[BlockedCell]()
    for cell_settings in settings:
        try:
            cells.append(builder.build(cell_settings))
        except Unavailable as error:  # For instance a missing API key.
            unavailable_cells.append(BlockedCell(cell_settings, error))
    if not cells:
        raise make_refusal_error(unavailable_cells, len(settings))
    _check_prices(cells)
    plan = plan_cases(cells, store, again=again)
    waiting = {id(cell) for cell in plan.open_jobs.cells}  # Finished cells need nothing any more.
    unavailable_cells += [
        BlockedCell(c.settings, lack) for c in cells if id(c) in waiting for lack in c.lacks
    ]
    if plan.open_jobs.searched and not again:
        check_searches(plan.open_jobs.searched, store)
    session = Session(
        tuple(settings),
        store,
        plan,
        again,
        usage_log,
        tuple(unavailable_cells),
        request=RunRequest(tuple(overrides), tuple(config_dirs), tuple(plugin_paths), skip_unavailable),
    )
    if rehearsal or not unavailable_cells:
        return session
    if skip_unavailable:
        return session.drop_cells(unavailable_cells)
    raise make_refusal_error(unavailable_cells, len(settings))


class _SilentListener(Listener):
    def on_case_stored(self, record: CaseRecord) -> None:
        """Do nothing: the command reads records from the log folder."""


def run_as_node(request: RunRequest, workers: int, hashes: frozenset[str]) -> RunOutcome:
    """Run a request on threads of this process, as one of several processes on the log folder.

    A node with other code or versions would compute other config hashes than the command; it is refused.

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
    if not {settings.config_hash for settings in session.settings} <= hashes:
        raise ConfigError("it finds other package versions than the command: install the same on every node.")
    return session.preflight(skip_unavailable=request.skip_unavailable).execute(_SilentListener())


def _check_run(settings: Sequence[Settings]) -> None:
    """Refuse a run whose cells differ in settings of the whole run."""
    if len({s.logdir for s in settings}) > 1 or len({s.executor for s in settings}) > 1:
        raise ConfigError("logdir and executor hold for a whole run; give each one value.")
    if len({(s.budget, s.preflight, s.cache) for s in settings}) > 1:
        raise ConfigError("budget, preflight and cache hold for a whole run; give each one value.")
    if settings[0].executor.kind is ExecutorKind.RAY and (absent := find_missing_packages(["ray"])):
        raise make_not_installed_error("executor=ray", absent, "distributed")


def _check_prices(cells: Sequence[Cell]) -> None:
    """Refuse a budget in dollars if a model has no price."""
    for cell in cells:
        unpriced = [card.name for card in cell.stack.cards if card.price is None and not card.simulated]
        if cell.usage_log is not None and cell.settings.budget.usd is not None and unpriced:
            raise ConfigError(
                f"budget.usd needs a price, and model '{unpriced[0]}' has none: give it one in its YAML "
                "(price: {prompt: ..., completion: ..., as_of: ...}), or set budget.tokens instead."
            )


def set_records_aside(jobs: Iterable[Job], store: Store) -> Path | None:
    """Move the stored records of cases, and their searches, to a folder that no reader looks into.

    Returns:
        That folder, with the same relative paths; None if nothing was stored.

    Raises:
        StoreError: If a file cannot be moved. Files moved before stay moved.
    """
    stored = list(dict.fromkeys(path for path in _list_stored_paths(jobs, store) if path.exists()))
    if not stored:
        return None
    folder = _find_new_aside_folder(store)
    try:
        for path in stored:
            target = folder / path.relative_to(store.root)
            make_folder(target.parent)
            with suppress(FileNotFoundError):  # Another process was faster.
                path.rename(target)
    except OSError as error:
        raise StoreError(
            f"Cannot keep the old records aside in {folder}: {error.strerror}. Give another logdir=..."
        ) from None
    return folder


def _list_stored_paths(jobs: Iterable[Job], store: Store) -> Iterator[Path]:
    """Yield where the records of cases lie, with the artefact and attempts of their searches."""
    for job in jobs:
        yield store.root / job.case.key
        if job.needs_search:
            yield make_artefact_path(store, job)
            try:
                yield from (store.root / folder for folder in list_attempt_folders(job))
            except NotInjectable:
                continue


def _find_new_aside_folder(store: Store) -> Path:
    """Name a new folder after the current time; a second process in the same second gets a number."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = store.own / "aside" / (moment if number == 1 else f"{moment}-{number}")
        if not folder.exists():
            return folder
    raise StoreError(f"{store.own / 'aside'} is full; give another logdir=...")
