"""`rerun`: the cases of an unpacked bundle, run again from its own replies; nothing is sent anywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from agentsys.bundles.archive import BundleReader
from agentsys.bundles.manifest import CODE, FILES, KEPT, RECORDS, REPLIES, BundledCell
from agentsys.bundles.portable import check_bundled_settings, insert_paths
from agentsys.catalog import list_config_names
from agentsys.errors import ConfigError
from agentsys.models.wrappers.reply_store import CacheMode
from agentsys.records.case import ATTEMPTS, Case
from agentsys.records.schema import OWN_KEY
from agentsys.runs.cell import Cell, CellBuilder
from agentsys.runs.claims import Claims
from agentsys.runs.executors.outcome import Listener
from agentsys.runs.executors.threads import run_on_threads
from agentsys.runs.plan import Job
from agentsys.runs.references import add_contents
from agentsys.runs.settings import Settings
from agentsys.runs.store import OWN_FOLDER, Store

_RUN_FOLDER = "run"
UNPACK_FOLDERS = {REPLIES: "replies", KEPT: f"{_RUN_FOLDER}/{OWN_FOLDER}", FILES: FILES, CODE: CODE}
"""Folder of a bundle -> where it is unpacked to."""


@dataclass(frozen=True)
class RerunPlan:
    """A bundle that can be run."""

    store: Store
    """Where the new records go."""
    jobs: tuple[Job, ...]
    cells: Mapping[str, Cell]
    """Hash in the bundle's records -> cell."""
    identities: Mapping[str, Mapping[str, Any]]
    """The same hash -> the identity that its settings have here, with `bundle:` in place of paths."""
    failed: Mapping[str, str]
    """Record -> why its case cannot be run."""

    def run(self, listener: Listener, workers: int) -> str | None:
        """Run every case; what ended it early, if anything did."""
        with Claims(self.store) as claims:
            outcome = run_on_threads(
                self.jobs, workers=workers, store=self.store, claims=claims, listener=listener, meter=None
            )
        return outcome.fatal or ("interrupted" if outcome.interrupted else None)


@contextmanager
def importable_folder(folder: Path) -> Iterator[None]:
    """Inside the block a bundle's own modules can be imported."""
    place = str(folder / CODE)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


def prepare_rerun(bundle: BundleReader, folder: Path) -> RerunPlan:
    """Build what the cases of a bundle need that was unpacked by `PLACES`.

    Raises:
        ConfigError: If its settings are none, or lead out of it, or this machine lacks something.
    """
    store = Store(folder / _RUN_FOLDER)
    configs = folder / "configs"
    (configs / "model").mkdir(parents=True)
    for cell in bundle.manifest.cells.values():
        _write_models(cell, configs / "model")
    builder = CellBuilder(store, (configs,))
    cells, identities = {}, {}
    for config_hash, cell in bundle.manifest.cells.items():
        settings = _build_settings(cell, folder, configs)
        cells[config_hash] = builder.build(settings)
        content = {"files": settings.files, "others": settings.others, "code": settings.code}
        identities[config_hash] = check_bundled_settings(cell.settings, Path()).model_copy(update=content).identity
    jobs, failed = _build_jobs(bundle, cells)
    return RerunPlan(store, tuple(jobs), cells, identities, failed)


def _build_settings(cell: BundledCell, folder: Path, configs: Path) -> Settings:
    replies = {"mode": CacheMode.READ_ONLY, "dir": folder / UNPACK_FOLDERS[REPLIES]}
    found = check_bundled_settings(insert_paths(cell.settings, folder), folder / _RUN_FOLDER, cache=replies, preflight=False)
    return add_contents([found], [configs])[0]


def _write_models(cell: BundledCell, folder: Path) -> None:
    """Give the models of further roles their YAMLs, unless they are shipped ones."""
    shipped = set(list_config_names("model"))
    for name, node in (cell.settings.get("others") or {}).items():
        if (
            not isinstance(node, dict)
            or not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        ):
            raise ConfigError(f"The bundle is refused: it names a model {name[:100]!a}.")
        if name not in shipped:
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(node), encoding="utf-8")


def _build_jobs(bundle: BundleReader, cells: Mapping[str, Cell]) -> tuple[list[Job], dict[str, str]]:
    jobs, failed = [], {}
    for name in bundle.list_members(RECORDS):
        if ATTEMPTS in name:  # run by its case's search
            continue
        try:
            jobs.append(_build_job(name, bundle.read_member(name)[0], cells))
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            failed[name] = f"no case can be read from it ({type(error).__name__})"
    return jobs, failed


def _build_job(name: str, content: bytes, cells: Mapping[str, Cell]) -> Job:
    block = orjson.loads(content)[OWN_KEY]
    case, cell = Case.model_validate(block["case"]), cells[block["config_hash"]]
    suite = cell.benchmark.suite(case.suite)
    there = case.user_task_id in suite.user_tasks or case.user_task_id in suite.injection_tasks
    if not there or name != f"{RECORDS}/{case.key}":
        raise ValueError(name)
    return Job(case, cell)
