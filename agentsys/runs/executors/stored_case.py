"""`run_and_store`: one claimed case from its job to its record on disk, in whatever thread or process."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.records.schema import CaseRecord
from agentsys.runs.claims import Claims
from agentsys.runs.finish_case import finish_case, lost_case
from agentsys.runs.plan import Job
from agentsys.runs.run_case import SearchStopped
from agentsys.runs.search.searches import CellSearches
from agentsys.runs.seats import NotBegun
from agentsys.runs.store import Store, StoreError


@dataclass(frozen=True)
class CaseEnd:
    """What came of a case whose record is stored."""

    record: CaseRecord
    fatal: str | None = None
    """Why no further case should be started."""
    cell_ended: str | None = None
    """Why no further case of its cell should be started."""
    error: str | None = None
    """What went wrong in it, in full."""


def run_and_store(job: Job, store: Store, searches: CellSearches, claims: Claims) -> CaseEnd | None:
    """Run a case that was claimed, store its record and give the claim back.

    Returns:
        What came of it; None: the run is ending, and the case had not begun, or its search was not done.

    Raises:
        StoreError: If the log folder cannot be written.
        RunBudgetReached: If the run may spend no more.
    """
    try:
        done = finish_case(job, store, searches)
        store.write(done.record, done.agentdojo)
    except (SearchStopped, NotBegun):
        return None
    except StoreError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one odd case must not cost the others
        done = lost_case(job, error)
        store.write(done.record, done.agentdojo)
    finally:
        claims.release(job.case.key)
    return CaseEnd(done.record, done.fatal, done.cell_ended, done.agentdojo.get("error"))
