"""Searches for attack texts: the first case that needs a search makes it, and the others wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from agentsys.attacks.attack_search import Attempt, find_attacker_fault, select_attempts
from agentsys.attacks.attacker_prompt import ATTACKER_ROLES
from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.search_options import PER_CASE, TRANSFER, ArtefactEntry
from agentsys.records.schema import CaseRecord, SearchFacts
from agentsys.runs.build_record import CaseRun, build_case_end, make_case_run
from agentsys.runs.claims import Claims
from agentsys.runs.plan import Job
from agentsys.runs.run_case import SearchFailed, SearchStopped, play_case, run_guarded
from agentsys.runs.run_totals import CaseEnd
from agentsys.runs.search_plan import (
    SearchKey,
    StoredAttempt,
    add_to_artefact,
    fill_vectors,
    find_search_cases,
    get_searched_attack,
    load_attempt,
    make_search_key,
)
from agentsys.runs.search_target import RunTarget, build_quest
from agentsys.runs.store import Store


@dataclass(frozen=True)
class SearchResult:
    """Result of a search."""

    text: str | None
    """The text of the chosen attempt; None if no text was tried."""
    attempt: int | None
    """Number of the chosen attempt."""
    facts: SearchFacts
    none: str = ""
    """The reason why no text was tried."""


@dataclass
class RunSearches:
    """Makes each search once. Thread-safe."""

    store: Store
    """Store of attempts and artefacts, those of an earlier run included."""
    made: Callable[[CaseRecord], None]
    """Called with every attempt, from the threads that make them."""
    stopping: Callable[[], bool]
    """Returns True if the run is ending: searches then stop before the next attempt."""
    claims: Claims
    """Claims of this run: a search that another run is making is waited for, and its result read."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _found: dict[SearchKey, Future[SearchResult]] = field(default_factory=dict)

    def finish_case(self, job: Job) -> CaseEnd:
        """Run a case with the text that its search finds.

        Raises:
            SearchStopped: If the run is ending; then there is nothing to store.
        """
        run = make_case_run(job)
        results: list[SearchResult] = []

        def search() -> None:
            fill_vectors(job, "")  # A user task without a vector fails here, before any search.
            results.append(self.get_result(job))

        run_guarded(run, search)
        if not results:
            return build_case_end(run)
        run.search = results[0].facts
        if results[0].attempt is not None and results[0].facts.mode == PER_CASE:
            # The chosen attempt was this very case with this text, so its record is used.
            stored = load_attempt(self.store, job, results[0].attempt)
            if stored is not None:
                return CaseEnd(build_final_record(stored, results[0].facts), stored.fields)
        run_guarded(run, lambda: _play_found(run, results[0]))
        return build_case_end(run)

    def get_result(self, job: Job) -> SearchResult:
        """Return the result of a case's search, made now unless another case has begun it.

        An error of the search is raised for every case that needs it; the next run continues from there.

        Raises:
            SearchFailed: If an attempt ended in an error.
            SearchStopped: If the run is ending.
            NotInjectable: If no vector can carry an injection.
            StoreError: If an attempt cannot be written.
        """
        key = make_search_key(job)
        with self._lock:
            begun = self._found.get(key)
            future = self._found.setdefault(key, Future())
        if begun is None:
            try:
                with self.claims.hold(f"search {'/'.join(map(str, key))}", self._stop_if_ending):
                    future.set_result(self._search(job))
            except BaseException as error:  # noqa: BLE001 - the threads that wait for the future must get it
                future.set_exception(error)
        return future.result()

    def _stop_if_ending(self) -> None:
        if self.stopping():
            raise SearchStopped

    def _search(self, job: Job) -> SearchResult:
        homes, attack = find_search_cases(job), get_searched_attack(job)
        lead = homes[0]
        quest = build_quest(homes)
        target = RunTarget(homes, attack, quest, self.store, self.made, self.stopping)
        attempts = attack.search(quest, target)
        kept = select_attempts(attack, attempts)
        facts = _build_search_facts(homes, attempts)
        # Also stored with the last attempt, whose case may not be in this run.
        last = load_attempt(self.store, target.lead, facts.attempts)
        if last is not None and last.record.search != facts:
            self.store.write(last.record.model_copy(update={"search": facts}), last.fields)
        if not kept:
            why = attempts[0].proposal.refused if attempts else "it made no attempt"
            return SearchResult(None, None, facts, f"The search for a text tried none: {why}.")
        add_to_artefact(self.store, self.claims, lead, _make_artefact_entries(lead, facts, kept))
        return SearchResult(kept[0].proposal.text, kept[0].number, facts)


def _build_search_facts(homes: Sequence[Job], attempts: Sequence[Attempt]) -> SearchFacts:
    attack = get_searched_attack(homes[0])
    refused = sum(attempt.proposal.refused is not None for attempt in attempts)
    none = None if refused < len(attempts) else find_attacker_fault(attempts) or ReplyFault.UNREADABLE.value
    gave_up = bool(attempts) and len(attempts) < attack.budget and not attempts[-1].success
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
        # The attacker's last fault, if it made the search give up.
        stopped=attempts[-1].proposal.fault if gave_up and none is None else None,
    )


def _make_artefact_entries(lead: Job, facts: SearchFacts, kept: Sequence[Attempt]) -> list[ArtefactEntry]:
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


def _play_found(run: CaseRun, result: SearchResult) -> None:
    """Run the case with the text that the search chose.

    A case that the search was made on is run once more with new replies: its earlier result, which made the search
    choose this text, is biased.
    """
    if result.text is None:
        raise SearchFailed(str(result.facts.fault), result.none, ends_run=False)
    rerun_index = 1 if result.facts.was_made_on(run.job.case) else 0
    play_case(run, fill_vectors(run.job, result.text), rerun_index)


def build_final_record(stored: StoredAttempt, facts: SearchFacts) -> CaseRecord:
    """Turn an attempt's record into the case's own, with the facts of its search.

    The attacker's cost stays with the attempts, so that a case's cost is always its agent's.
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
