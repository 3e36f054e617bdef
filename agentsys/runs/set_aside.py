"""`set_aside`: make room for a plan that is run anew. Nothing is deleted, and readers look elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from agentsys.contracts import NotInjectable
from agentsys.runs.plan import Job
from agentsys.runs.search.search_artefacts import artefact_path
from agentsys.runs.search.search_job import needs_search, search_homes
from agentsys.runs.store import Store, StoreError


def set_aside(jobs: Iterable[Job], store: Store) -> Path | None:
    """Move what is stored of some cases, their searches included, out of the readers' sight.

    Returns:
        The folder it is in now, under the same paths as before; None if nothing was stored.

    Raises:
        StoreError: If a file cannot be moved. Those moved before stay where they are now.
    """
    stored = [path for path in dict.fromkeys(_stored(jobs, store)) if path.exists()]
    if not stored:
        return None
    folder = _new_folder(store)
    try:
        for path in stored:
            target = folder / path.relative_to(store.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # another process was faster
                path.rename(target)
    except OSError as error:
        raise StoreError(
            f"Cannot keep the old records aside in {folder}: {error.strerror}. Give another logdir=..."
        ) from None
    return folder


def _stored(jobs: Iterable[Job], store: Store) -> Iterator[Path]:
    for job in jobs:
        yield store.root / job.case.key
        if needs_search(job):
            yield artefact_path(store, job)
            try:
                homes = search_homes(job)
            except NotInjectable:
                continue
            yield from ((store.root / home.case.attempt_key(1)).parent for home in homes)


def _new_folder(store: Store) -> Path:
    """A folder of this moment. A second process in the same second takes the next name."""
    moment = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1, 1000):
        folder = store.own / "aside" / (moment if number == 1 else f"{moment}-{number}")
        if not folder.exists():
            return folder
    raise StoreError(f"{store.own / 'aside'} is full; give another logdir=...")
