"""`SearchRunner`: the first case that needs a search for its text makes it; the others wait and hold no worker."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from agentsys.attacks.attack_search import Attempt, find_attacker_fault, select_attempts
from agentsys.attacks.attacker_prompt import ATTACKER_ROLES
from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.search_options import PER_CASE, TRANSFER, ArtefactEntry
from agentsys.records.schema import CaseRecord, SearchFacts
from agentsys.runs.build_record import CaseEnd, CaseError, CaseOutcome, build_case_end, make_tracer
from agentsys.runs.case_runner import PlainRunner, RunContext
from agentsys.runs.cell import Job
from agentsys.runs.run_case import explain_error, play_case
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
from agentsys.runs.search_quest import build_quest
from agentsys.runs.search_target import AheadLimit, RunTarget, SearchFailed, SearchStopped
from agentsys.runs.store import StoreError

_LOOK_EVERY_S = 0.5


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


class SearchRunner(PlainRunner):
    """Runs cases whose text a search finds, and others as they are; each search is made once. Thread-safe.

    Args:
        context: The run; attempts and artefacts of earlier runs in its store are used.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self._context, self._limit, self._lock = context, AheadLimit(), threading.Lock()
        self._searches: dict[SearchKey, Future[SearchResult]] = {}
        self._next_looks: dict[SearchKey, float] = {}
        """Search that another process makes -> when to look again whether it is done (`time.monotonic`)."""

    @property
    def summary(self) -> str:
        """The queries that were made ahead of their turn and thrown away; `""` if there are none."""
        thrown_away, counted = self._limit.thrown_away, self._limit.counted
        if not thrown_away:
            return ""
        share = thrown_away / (thrown_away + counted)
        return (
            f"Made ahead and thrown away: {thrown_away:,} of {thrown_away + counted:,} queries of searches"
            f" ({share:.1%}). They were paid for, and stand in the ledger and in no record."
        )

    def is_ready(self, job: Job) -> bool:
        """False while another case, or another process, makes the search that a case needs."""
        if not job.needs_search:
            return True
        key = make_search_key(job)
        search = self._searches.get(key)
        return self._next_looks.get(key, 0.0) <= time.monotonic() if search is None else search.done()

    def run(self, job: Job) -> CaseEnd | None:
        """Run a case with the text that its search finds, which is made now if no other case has begun it.

        An error of a search is that of every case that needs it; the next run continues from there.
        """
        if not job.needs_search:
            return super().run(job)
        outcome = CaseOutcome(job=job, tracer=make_tracer(job), started=time.time(), duration_s=0.0)
        facts = None
        try:
            fill_vectors(job, "")  # A user task without a vector fails here, before any search.
            result = self._get_result(job)
            if result is None:
                return None
            facts = result.facts
            if facts.mode == PER_CASE and result.attempt is not None:
                # The chosen attempt was this very case with this text, so its record is used.
                stored = load_attempt(self._context.store, job, result.attempt)
                if stored is not None:
                    return CaseEnd(build_final_record(stored, facts), stored.fields)
            if result.text is None:
                raise SearchFailed(CaseError(str(facts.fault), result.none))
            # A case that the search was made on is run once more with new replies: its earlier result, which made
            # the search choose this text, is biased.
            texts, rerun_index = fill_vectors(job, result.text), int(facts.was_made_on(job.case))
            with self._context.workers.hold():
                outcome = play_case(job, outcome.tracer, texts, rerun_index)
        except SearchStopped:
            return None
        except SearchFailed as failed:
            outcome = outcome.fail(failed.error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an errored case must not lose the others
            outcome = outcome.fail(explain_error(error))
        return build_case_end(outcome, facts)

    def _get_result(self, job: Job) -> SearchResult | None:
        """Return the result of a case's search; None while another case or process makes it.

        Raises:
            SearchFailed: If an attempt ended in an error.
            SearchStopped: If the run is ending.
            NotInjectable: If no vector can carry an injection.
            StoreError: If an attempt cannot be written.
        """
        key, claims = make_search_key(job), self._context.claims
        name = f"search {'/'.join(map(str, key))}"
        with self._lock:
            begun = self._searches.get(key)
            if begun is None and not claims.take(name):
                self._next_looks[key] = time.monotonic() + _LOOK_EVERY_S
                return None
            search = self._searches.setdefault(key, Future())
        if begun is not None:
            return begun.result() if begun.done() else None
        try:
            search.set_result(self._search(job))
        except BaseException as error:  # noqa: BLE001 - every case that needs the search gets it
            search.set_exception(error)
        finally:
            claims.release(name)
        return search.result()

    def _search(self, job: Job) -> SearchResult:
        homes, attack, store = find_search_cases(job), get_searched_attack(job), self._context.store
        lead, quest = homes[0], build_quest(homes)
        target = RunTarget(homes, attack, quest, self._context, self._limit)
        try:
            attempts = attack.search(quest, target)
        finally:
            target.drop_ahead()
        kept = select_attempts(attack, attempts)
        facts = _build_search_facts(homes, attempts)
        # Also stored with the last attempt, whose case may not be in this run.
        last = load_attempt(store, lead, facts.attempts)
        if last is not None and last.record.search != facts:
            store.write(last.record.model_copy(update={"search": facts}), last.fields)
        if not kept:
            why = attempts[0].proposal.refused if attempts else "it made no attempt"
            return SearchResult(None, None, facts, f"The search for a text tried none: {why}.")
        add_to_artefact(store, self._context.claims, lead, _make_artefact_entries(lead, facts, kept))
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
