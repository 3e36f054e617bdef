"""`Session`: from overrides to a plan that is ready to execute. What the command line and notebooks call."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsys.atomic_file import Process
from agentsys.errors import ConfigError
from agentsys.runs.cell import CellBuilder
from agentsys.runs.claims import Claims
from agentsys.runs.compose import compose
from agentsys.runs.execute import Listener, Outcome, execute
from agentsys.runs.plan import Plan, plan
from agentsys.runs.search_artefacts import artefact_path
from agentsys.runs.search_job import needs_search
from agentsys.runs.search_plan import SearchPlan, check_searches, search_plan
from agentsys.runs.set_aside import set_aside
from agentsys.runs.settings import Settings
from agentsys.runs.store import Store


@dataclass(frozen=True)
class Session:
    """A planned run."""

    settings: tuple[Settings, ...]
    """One per cell."""
    store: Store
    plan: Plan
    again: bool = False
    """Whether every case is run anew, finished or not."""

    @property
    def folders(self) -> list[Path]:
        """The pipeline folders this run writes: what its tables are made of."""
        return [self.store.root / name for name in dict.fromkeys(job.case.pipeline for job in self.plan.jobs)]

    @property
    def searches(self) -> SearchPlan:
        """The searches that the cases to run need."""
        return search_plan(self.plan.todo, self.store)

    @property
    def artefacts(self) -> list[Path]:
        """The files with what this run's searches found, as far as they exist."""
        paths = dict.fromkeys(artefact_path(self.store, job) for job in self.plan.jobs if needs_search(job))
        return [path for path in paths if path.is_file()]

    def execute(self, listener: Listener) -> Outcome:
        """Run what is missing; before that, what is run anew is kept aside.

        Raises:
            StoreError: If the log folder cannot be written.
            ConfigError: If all is to be run anew while another process runs it.
        """
        with Claims(self.store) as claims:
            others = claims.others()
            if others:
                listener.joined([process.pid for process in others])
            if self.again:
                _check_alone(others, self.store)
                set_aside(self.plan.jobs, self.store)
            self.store.remember_plan(job.case for job in self.plan.jobs)
            for settings in self.settings:
                self.store.remember_config(settings.config_hash, settings.identity)
            workers = self.settings[0].executor.workers
            return execute(
                self.plan.todo, workers=workers, store=self.store, claims=claims, listener=listener
            )


def _check_alone(others: Sequence[Process], store: Store) -> None:
    if others:
        raise ConfigError(
            f"Process {others[0].pid} is at work in {store.root}, and --again would set its records aside: "
            "let it finish first."
        )


def prepare(
    overrides: Sequence[str],
    *,
    config_dirs: Sequence[Path] = (),
    plugin_paths: Sequence[Path] = (),
    rehearsal: bool = False,
    again: bool = False,
) -> Session:
    """Compose, build and plan a run without running anything.

    Args:
        overrides: Hydra overrides as typed on the command line; comma lists sweep.
        config_dirs: The user's own config folders.
        plugin_paths: Folders the user's own modules are imported from.
        rehearsal: Whether the simulated model stands in for every model (a dry run needs no key). Such
            a session is for estimates; it must not be executed.
        again: Whether finished cases are run anew too.

    Raises:
        ConfigError: For anything the user can mend.
    """
    for path in plugin_paths:
        if not path.is_dir():
            raise ConfigError(f"--plugin-path {path}: no such folder.")
        sys.path.insert(0, str(path.resolve()))
    settings = compose(overrides, config_dirs)
    if len({s.logdir for s in settings}) > 1 or len({s.executor for s in settings}) > 1:
        raise ConfigError("logdir and executor hold for a whole run; give each one value.")
    store = Store(settings[0].logdir)
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=rehearsal)
    cells = [builder.build(one) for one in settings]
    found = plan(cells, store, again=again)
    if not again:
        check_searches(found.todo, store)
    return Session(tuple(settings), store, found, again)
