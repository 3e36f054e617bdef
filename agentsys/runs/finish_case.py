"""`finish_case`: a case from its job to what is stored of it, its search included where it needs one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentsys.attacks.attacker import ATTACKER_ROLES
from agentsys.attacks.search_options import PER_CASE
from agentsys.records.schema import CaseRecord, SearchFacts
from agentsys.runs.build_record import build_agentdojo_fields, build_record
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, SearchFailed, run_guarded, new_case_run, play_case, run_case, format_traceback
from agentsys.runs.search.search_job import needs_search, fill_vectors
from agentsys.runs.search.searches import RunSearches, SearchResult
from agentsys.runs.search.stored_attempt import StoredAttempt, load_attempt
from agentsys.runs.store import Store


@dataclass(frozen=True)
class FinishedJob:
    """The parts of a case that are to be stored."""

    record: CaseRecord
    agentdojo: Mapping[str, Any]
    """The fields AgentDojo's loader wants."""
    fatal: str | None = None
    """Why no further case should be started."""
    cell_ended: str | None = None
    """Why no further case of its cell should be started."""


def finish_case(job: Job, store: Store, searches: RunSearches) -> FinishedJob:
    """Run a case, with the text that its search found where the attack searches.

    Raises:
        SearchStopped: If the run is ending; then there is nothing to store.
    """
    if not needs_search(job):
        return _finish_run(run_case(job))
    return _finish_searched(job, store, searches)


def build_lost_case(job: Job, error: BaseException) -> FinishedJob:
    """Make what is stored where making a record of a case went wrong: that it did, and where."""
    run = new_case_run(job)
    run.error_kind, run.error = "record", f"{type(error).__name__}: {error}"
    run.traceback = format_traceback(error)
    return _finish_run(run)


def _finish_run(run: CaseRun) -> FinishedJob:
    record, fields = build_record(run), build_agentdojo_fields(run)
    return FinishedJob(
        record, fields, run.error if run.ends_run else None, run.error if run.ends_cell else None
    )


def _finish_searched(job: Job, store: Store, searches: RunSearches) -> FinishedJob:
    run = new_case_run(job)
    found: list[SearchResult] = []

    def search() -> None:
        fill_vectors(job, "")  # a user task without a vector needs no search
        found.append(searches.get_result(job))

    run_guarded(run, search)
    if not found:
        return _finish_run(run)
    run.search = found[0].facts
    if found[0].attempt is not None and found[0].facts.mode == PER_CASE:
        # The attempt that was this very case with the text the search chose; it need not be run again.
        stored = load_attempt(store, job, found[0].attempt)
        if stored is not None:
            return FinishedJob(build_final_record(stored, found[0].facts), stored.fields)
    run_guarded(run, lambda: _play_found(run, found[0]))
    return _finish_run(run)


def _play_found(run: CaseRun, found: SearchResult) -> None:
    """Run the case with the text that was found.

    A case that the search was made on is run once more, on replies of its own: that the text did best there
    is why it was chosen.
    """
    if found.text is None:
        raise SearchFailed(str(found.facts.fault), found.none, ends_run=False)
    again = 1 if found.facts.was_made_on(run.job.case) else 0
    play_case(run, fill_vectors(run.job, found.text), again)


def build_final_record(stored: StoredAttempt, facts: SearchFacts) -> CaseRecord:
    """An attempt's record as the case's own, with what its search came to.

    What the attacker cost stays with the attempts: so a case costs what its agent did, whichever
    way its text was found.
    """
    record = stored.record
    return record.model_copy(
        update={
            "attempt": None,
            "search": facts,
            "usage": {role: usage for role, usage in record.usage.items() if role not in ATTACKER_ROLES},
            "spans": [span for span in record.spans if span.kind not in ATTACKER_ROLES],
        }
    )
