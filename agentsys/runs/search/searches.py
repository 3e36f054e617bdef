"""`CellSearches`: the searches of one run. The first case that needs one makes it, the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from agentsys.attacks.artefact import ArtefactEntry
from agentsys.attacks.attacker.reply import ReplyFault
from agentsys.attacks.search import Attempt, find_attacker_fault, select_attempts
from agentsys.attacks.search_options import PER_CASE, TRANSFER
from agentsys.records.schema import CaseRecord, SearchFacts
from agentsys.runs.claims import Claims
from agentsys.runs.plan import Job
from agentsys.runs.run_case import SearchStopped
from agentsys.runs.search.search_artefacts import SearchArtefacts
from agentsys.runs.search.search_job import SearchKey, find_search_cases, search_key, searched_attack
from agentsys.runs.search.search_target import RunTarget
from agentsys.runs.search.search_task import build_quest
from agentsys.runs.search.stored_attempt import load_attempt
from agentsys.runs.store import Store


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    text: str | None
    """Of the attempt that `chosen` picks; None: no text was tried, so that there is no search to speak of."""
    attempt: int | None
    """Number of that attempt."""
    facts: SearchFacts
    none: str = ""
    """Why no text was tried."""


class RunSearches:
    """Makes each search once. Safe to use from many threads.

    Args:
        store: Store for attempts and artefacts; it holds those of an earlier run.
        made: Called with every attempt, from the threads that make them.
        stopping: Whether the run is ending: searches then stop before the next attempt.
        claims: Claims of this run: a search that another run is making is waited for, and then read.
    """

    def __init__(
        self, store: Store, made: Callable[[CaseRecord], None], stopping: Callable[[], bool], claims: Claims
    ) -> None:
        self._store, self._made, self._stopping, self._claims = store, made, stopping, claims
        self._artefacts = SearchArtefacts(store, claims)
        self._lock = threading.Lock()
        self._found: dict[SearchKey, Future[SearchResult]] = {}

    def get_result(self, job: Job) -> SearchResult:
        """The search of a case, made now if no other case has begun it.

        An error of the search is raised for every case that needs it; the next run goes on from there.

        Raises:
            SearchFailed: If an attempt ended in an error.
            SearchStopped: If the run is ending.
            NotInjectable: If no vector can carry an injection.
            StoreError: If an attempt cannot be written.
        """
        key = search_key(job)
        with self._lock:
            begun = self._found.get(key)
            future = self._found.setdefault(key, Future())
        if begun is None:
            try:
                with self._claims.hold(f"search {'/'.join(map(str, key))}", self._stop_if_ending):
                    future.set_result(self._search(job))
            except BaseException as error:  # noqa: BLE001 - whoever waits must hear of it, whatever it is
                future.set_exception(error)
        return future.result()

    def _stop_if_ending(self) -> None:
        if self._stopping():
            raise SearchStopped

    def _search(self, job: Job) -> SearchResult:
        homes, attack = find_search_cases(job), searched_attack(job)
        lead = homes[0]
        quest = build_quest(homes)
        target = RunTarget(homes, attack, quest, self._store, self._made, self._stopping)
        attempts = attack.search(quest, target)
        kept = select_attempts(attack, attempts)
        facts = _build_search_facts(homes, attempts)
        # In the last attempt's file, too: its case may not be in this run.
        last = load_attempt(self._store, target.lead, facts.attempts)
        if last is not None and last.record.search != facts:
            self._store.write(last.record.model_copy(update={"search": facts}), last.fields)
        if not kept:
            why = attempts[0].proposal.refused if attempts else "it made no attempt"
            return SearchResult(None, None, facts, f"The search for a text tried none: {why}.")
        self._artefacts.add(lead, _artefact_entries(lead, facts, kept))
        return SearchResult(kept[0].proposal.text, kept[0].number, facts)


def _build_search_facts(homes: Sequence[Job], attempts: Sequence[Attempt]) -> SearchFacts:
    attack = searched_attack(homes[0])
    refused = sum(attempt.proposal.refused is not None for attempt in attempts)
    none = None if refused < len(attempts) else find_attacker_fault(attempts) or ReplyFault.UNREADABLE.value
    return SearchFacts(
        mode=attack.mode,
        budget=attack.budget,
        attempts=len(attempts),
        refused=refused,
        found_at=next((attempt.number for attempt in attempts if attempt.success), None),
        user_task_id=homes[0].case.user_task_id,
        homes=tuple(home.case.user_task_id for home in homes) if attack.mode == TRANSFER else (),
        tried=len(attempts) - refused,
        fault=none,
        stopped=_stop_fault(attempts, attack.budget) if none is None else None,
    )


def _stop_fault(attempts: Sequence[Attempt], budget: int) -> str | None:
    """The attacker's last fault, where a search gave up on it."""
    return attempts[-1].proposal.fault if len(attempts) < budget and not attempts[-1].success else None


def _artefact_entries(lead: Job, facts: SearchFacts, kept: Sequence[Attempt]) -> list[ArtefactEntry]:
    case = lead.case
    return [
        ArtefactEntry(
            suite=case.suite,
            user_task=case.user_task_id if facts.mode == PER_CASE else None,
            injection_task=str(case.injection_task_id),
            text=attempt.proposal.text,
            success=attempt.success,
            attempts=facts.attempts,
            tried=facts.tried,
            homes=facts.homes,
            variant=number,
            score=attempt.judgement.score,
            attempt=attempt.number,
        )
        for number, attempt in enumerate(kept)
    ]
