"""`start_run`: the executor that a run's settings name, with what it needs."""

from __future__ import annotations

import logging
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentsys.errors import ConfigError
from agentsys.extras import missing, not_installed
from agentsys.runs.settings import ExecutorKind, Settings

# What runs cases is imported where it is used: a run in which nothing is left to do needs none of it.
if TYPE_CHECKING:
    from agentsys.models.budget import Meter
    from agentsys.runs.claims import Claims
    from agentsys.runs.executors.messages import Orders
    from agentsys.runs.executors.outcome import Listener, RunOutcome
    from agentsys.runs.executors.staff import Staff
    from agentsys.runs.plan import Jobs
    from agentsys.runs.store import Store

_LOGGERS = ("agentsys", "baselines")


@dataclass(frozen=True)
class Places:
    """Where a user's own files are."""

    config_dirs: tuple[Path, ...] = ()
    plugin_paths: tuple[Path, ...] = ()


def start_run(
    jobs: Jobs,
    settings: Settings,
    staff: Staff | None,
    *,
    store: Store,
    claims: Claims,
    listener: Listener,
    meter: Meter | None,
) -> RunOutcome:
    """Run every job in the workers of `staff`; None: on threads of this process."""
    chosen = settings.executor
    for cell in jobs.cells:  # workers elsewhere warm up theirs
        cell.warm_up() if staff is None else cell.read_data()
    if staff is None:
        from agentsys.runs.executors.threads import execute

        workers = chosen.workers
        return execute(jobs, workers=workers, store=store, claims=claims, listener=listener, meter=meter)
    from agentsys.runs.executors.driver import Crowd, run_by_workers

    crowd = Crowd(chosen.processes, chosen.threads)
    return run_by_workers(
        jobs, staff=staff, crowd=crowd, store=store, claims=claims, listener=listener, meter=meter
    )


def check_travels(settings: Settings) -> None:
    """Refuse settings that mean nothing in another process.

    Raises:
        Unavailable: If the executor's extra is not installed.
        ConfigError: Naming the setting.
    """
    executor = settings.executor.kind
    if executor is ExecutorKind.THREADS:
        return
    if executor is ExecutorKind.RAY and (lacking := missing(["ray"])):
        raise not_installed("executor=ray", lacking, "distributed")
    if settings.attack.get("name") == "manual":
        raise ConfigError("attack=manual asks in this terminal: use executor=threads with it.")
    for group, node in settings:
        try:
            pickle.dumps(node)
        except Exception as error:  # noqa: BLE001 - whatever an object of the user's raises
            raise ConfigError(
                f"Setting '{group}' holds what cannot be handed to another process"
                f" ({type(error).__name__}: {error}); use executor=threads."
            ) from None


def _orders(settings: Settings, places: Places, store: Store) -> Orders:
    from agentsys.runs.executors.messages import Orders

    return Orders(
        logdir=store.root.resolve(),
        here=Path.cwd(),
        threads=settings.executor.threads,
        config_dirs=tuple(path.resolve() for path in places.config_dirs),
        plugin_paths=tuple(path.resolve() for path in places.plugin_paths),
        budget=settings.budget,
        log_levels=tuple((name, logging.getLogger(name).level) for name in _LOGGERS),
    )


def staff_for(
    jobs: Jobs, settings: Settings, places: Places, store: Store, *, in_command: bool = False
) -> Staff | None:
    """Workers elsewhere, as `executor` says, which begin to come up; None where none are needed.

    Args:
        jobs: What they will run.
        settings: Of the run.
        places: The user's own.
        store: Where their records go.
        in_command: Whether this process is a command of ours and has done nothing but plan the run.

    Raises:
        Unavailable: If the executor's extra is not installed.
    """
    if not jobs or settings.executor.kind is ExecutorKind.THREADS:
        return None
    orders = _orders(settings, places, store)
    if settings.executor.kind is ExecutorKind.PROCESSES:
        from agentsys.runs.executors.processes import ProcessStaff

        return ProcessStaff(orders, (cell.settings for cell in jobs.cells), in_command=in_command)
    from agentsys.runs.executors.ray_nodes import RayStaff

    return RayStaff(orders, settings.executor.address)
