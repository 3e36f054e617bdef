"""Writes the artefact of a run's searches, one file per agent and attack, as the searches finish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agentsys.atomic_file import write_atomically
from agentsys.attacks.artefact import Artefact, ArtefactEntry, read_artefact
from agentsys.errors import ConfigError
from agentsys.records.case import safe_name
from agentsys.runs.claims import Claims
from agentsys.runs.plan import Job
from agentsys.runs.search.search_job import searched_attack
from agentsys.runs.store import Store


def artefact_path(store: Store, job: Job) -> Path:
    """Path of the artefact of a case's agent and attack."""
    return store.own / "searches" / job.case.pipeline / f"{safe_name(job.case.attack)}.json"


class SearchArtefacts:
    """The artefacts of one run. Safe to use from many threads, and beside other runs."""

    def __init__(self, store: Store, claims: Claims) -> None:
        self._store, self._claims = store, claims

    def add(self, job: Job, entries: Sequence[ArtefactEntry]) -> None:
        """Put what a search came to into its file, in place of what is there for the same tasks.

        Raises:
            StoreError: If it cannot be written.
        """
        path = artefact_path(self._store, job)
        with self._claims.hold(f"artefact {path.relative_to(self._store.root)}"):
            before = _read_existing(path) or _empty_artefact(job)
            now = before.with_search(entries)
            if now == before and path.exists():
                return
            try:
                write_atomically(path, now.as_json())
            except OSError as error:
                raise self._store.unwritable(path, error) from None


def _read_existing(path: Path) -> Artefact | None:
    """Read what an earlier run wrote; what cannot be read is written anew from the stored attempts."""
    try:
        return read_artefact(path) if path.exists() else None
    except ConfigError:
        return None


def _empty_artefact(job: Job) -> Artefact:
    case = job.case
    return Artefact(
        attack=case.attack,
        mode=searched_attack(job).mode,
        benchmark=case.benchmark,
        version=case.version,
        model=case.model,
        defense=case.defense,
        entries=(),
    )
