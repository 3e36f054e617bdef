"""Planning and storage of searches for attack texts: a search's cases, attempts and artefact.

Nothing here runs a case, so that a session with nothing left to do loads quickly.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, cast

import orjson
from pydantic import ValidationError

from agentsys.attacks.attack_search import (
    Attempt,
    AttemptPosition,
    Judgement,
    Proposal,
    SearchedAttack,
    find_attacker_fault,
)
from agentsys.attacks.attacker_prompt import ATTACKER_ROLES, ReplyFault
from agentsys.attacks.injection_vectors import find_injectable_vectors
from agentsys.attacks.search_options import PER_CASE, TRANSFER, Artefact, ArtefactEntry, read_artefact
from agentsys.base.atomic_file import write_atomically
from agentsys.base.packed_json import read_json_bytes
from agentsys.contracts import NotInjectable, Suite, UserTask
from agentsys.errors import ConfigError
from agentsys.models.chat import Usage
from agentsys.models.trace import ModelCall, Span
from agentsys.records.case import make_safe_name
from agentsys.records.schema import AttemptFacts, CaseRecord, EarlyProposal, SearchFacts, StoredSpan
from agentsys.runs.case_outcome import CaseError
from agentsys.runs.cell import Job
from agentsys.runs.claims import Claims
from agentsys.runs.plan import format_stale_message
from agentsys.runs.store import Store


class SearchKey(NamedTuple):
    """Identity of one search."""

    pipeline: str
    """Model, defense, benchmark and epoch."""
    attack: str
    suite: str
    injection_task: str
    user_task: str | None
    """None: one search for all user tasks."""


def find_first_of_searches(jobs: Iterable[Job]) -> list[Job]:
    """List the first case of each search that these cases need."""
    first: dict[SearchKey, Job] = {}
    for job in (job for job in jobs if job.needs_search):
        first.setdefault(make_search_key(job), job)
    return list(first.values())


def get_searched_attack(job: Job) -> SearchedAttack:
    """Return the attack of a case that needs a search."""
    return cast(SearchedAttack, job.cell.attack)


def make_search_key(job: Job) -> SearchKey:
    """Build the key of a case's search."""
    case, mode = job.case, get_searched_attack(job).mode
    own = None if mode == TRANSFER else case.user_task_id
    return SearchKey(case.pipeline, case.attack, case.suite, str(case.injection_task_id), own)


def find_search_cases(job: Job) -> list[Job]:
    """List the cases that a case's search is made on; the attempts of the first one hold the whole search.

    In mode `transfer` they are a sample of the suite's user tasks that can show an injection. The run's own limits
    do not matter: another limit must not change the text that finished cases were run with.

    Raises:
        NotInjectable: If no user task can show an injection.
    """
    attack, case = get_searched_attack(job), job.case
    if attack.mode != TRANSFER:
        return [job]
    suite = job.cell.benchmark.suite(case.suite)
    able = [str(task_id) for task_id, task in suite.user_tasks.items() if _is_injectable(suite, task)]
    if not able:
        raise NotInjectable(f"No user task of {case.suite} shows an injection vector.")
    # Not drawn by the run's seed, so that searches under different seeds use the same cases.
    draw = random.Random(f"{case.version}\n{case.suite}\n{case.injection_task_id}")
    homes = draw.sample(able, min(attack.search_on, len(able)))
    return [replace(job, case=case.model_copy(update={"user_task_id": home})) for home in homes]


def list_attempt_folders(job: Job) -> list[str]:
    """List the folders, relative to the log folder, of the attempts of a case's search.

    Raises:
        NotInjectable: As `find_search_cases` does.
    """
    keys = [home.case.make_attempt_key(1) for home in find_search_cases(job)]
    return list(dict.fromkeys(str(PurePosixPath(key).parent) for key in keys))


def fill_vectors(job: Job, text: str) -> dict[str, str]:
    """Put a text into every injection vector of a case's user task: vector -> text.

    Raises:
        NotInjectable: If the user task has no vector.
    """
    suite = job.cell.benchmark.suite(job.case.suite)
    user_task = suite.user_tasks[job.case.user_task_id]
    return dict.fromkeys(find_injectable_vectors(suite, user_task), text)


def _is_injectable(suite: Suite, task: UserTask) -> bool:
    try:
        return bool(find_injectable_vectors(suite, task))
    except NotInjectable:
        return False


@dataclass(frozen=True)
class StoredAttempt:
    """The content of an attempt's file."""

    record: CaseRecord
    facts: AttemptFacts
    fields: dict[str, Any]
    """The file's top level: AgentDojo's own fields."""

    @property
    def is_finished(self) -> bool:
        """True if it need not be made again."""
        return self.record.status == "ok"

    @property
    def attempt(self) -> Attempt:
        """The attempt in the search's own form."""
        return to_attempt(self.record, self.facts)


def load_attempt(store: Store, job: Job, number: int) -> StoredAttempt | None:
    """Load the attempt of a case's search with this number; None if none of this configuration is stored."""
    try:
        fields = orjson.loads(read_json_bytes(store.root / job.case.make_attempt_key(number)))
        record = CaseRecord.model_validate(fields.pop("agentsys"))
    except (OSError, ValueError, ValidationError, KeyError, AttributeError, TypeError):
        return None
    if record.attempt is None or record.case != job.case or record.config_hash != job.cell.config_hash:
        return None
    return StoredAttempt(record, record.attempt, fields)


def build_attempt_facts(
    number: int, position: AttemptPosition, proposal: Proposal, judgement: Judgement
) -> AttemptFacts:
    """Build the stored facts of an attempt."""
    ahead = proposal.ahead
    return AttemptFacts(
        number=number,
        **vars(position),
        text=proposal.text,
        proposed=proposal.proposed,
        why=proposal.why,
        strategy=proposal.strategy,
        refused=proposal.refused,
        fault=proposal.fault,
        ahead=None if ahead is None else EarlyProposal.model_validate(ahead, from_attributes=True),
        score=judgement.score,
        feedback=judgement.feedback,
    )


def to_attempt(record: CaseRecord, facts: AttemptFacts) -> Attempt:
    """Convert an attempt's record to the search's own form."""
    carried_out = int(record.security) if facts.carried_out is None else facts.carried_out
    share = carried_out / facts.tried_on if facts.refused is None else 0.0
    return Attempt(
        facts.number,
        AttemptPosition(facts.stream, facts.depth, facts.parent),
        to_proposal(facts),
        share == 1.0,
        Judgement(facts.score, facts.feedback),
        share,
    )


def to_proposal(facts: AttemptFacts) -> Proposal:
    """Rebuild the proposal that was tried, with an earlier one that the attacker made ahead of it, if any."""
    ahead = None if facts.ahead is None else Proposal(**facts.ahead.model_dump())
    return Proposal(facts.text, facts.why, facts.refused, facts.fault, facts.proposed, facts.strategy, ahead)


def to_span(stored: StoredSpan) -> Span:
    """Convert a stored span back to a trace's span."""
    calls = []
    for call in stored.calls:
        usage = Usage.from_stored(call)
        calls.append(ModelCall(usage=usage, **{k: v for k, v in call if not hasattr(usage, k)}))
    return Span(**{**dict(stored), "calls": calls})


def describe_searches(jobs: Iterable[Job], store: Store) -> str:
    """Describe in one line the searches that cases need; queries of an earlier run are not counted."""
    first = find_first_of_searches(jobs)
    which = "1 search" if len(first) == 1 else f"{len(first)} searches"
    queries = sum(_count_queries_left(job, store) for job in first)
    return (
        f"{which} for an attack's text with at most {queries} queries still to make, each a run of the agent."
    )


def check_searches(jobs: Iterable[Job], store: Store) -> None:
    """Refuse to continue searches begun under other settings, whose attempts were already paid for.

    Raises:
        ConfigError: If a finished attempt was made under another configuration.
    """
    for job in find_first_of_searches(jobs):
        for path in _list_attempt_files(job, store):
            stored = store.read_file_status(path)
            if stored.status == "ok" and stored.config_hash != job.cell.config_hash:
                raise ConfigError(format_stale_message(job, stored.config_hash, store))


def _count_queries_left(job: Job, store: Store) -> int:
    try:
        queries = get_searched_attack(job).budget * len(find_search_cases(job))
    except NotInjectable:
        return 0
    return max(queries - len(_list_attempt_files(job, store)), 0)


def _list_attempt_files(job: Job, store: Store) -> list[Path]:
    try:
        folders = list_attempt_folders(job)
    except NotInjectable:
        return []
    return [path for folder in folders for path in sorted((store.root / folder).glob("*.json"))]


def make_artefact_path(store: Store, job: Job) -> Path:
    """Path of the artefact for a case's pipeline and attack."""
    return store.own / "searches" / job.case.pipeline / f"{make_safe_name(job.case.attack)}.json"


def add_to_artefact(store: Store, claims: Claims, job: Job, entries: Sequence[ArtefactEntry]) -> None:
    """Write a search's entries into its artefact; they replace entries for the same tasks.

    Safe to use from several threads and processes.

    Raises:
        StoreError: If the file cannot be written.
    """
    path = make_artefact_path(store, job)
    with claims.hold(f"artefact {path.relative_to(store.root)}"):
        case, before = job.case, None
        with suppress(ConfigError):  # An unreadable artefact is written anew from the stored attempts.
            before = read_artefact(path) if path.exists() else None
        before = before or Artefact(
            attack=case.attack,
            mode=get_searched_attack(job).mode,
            benchmark=case.benchmark,
            version=case.version,
            model=case.model,
            defense=case.defense,
            entries=(),
        )
        now = before.with_search(entries)
        if now == before and path.exists():
            return
        try:
            write_atomically(path, now.as_json())
        except OSError as error:
            raise store.make_write_error(path, error) from None


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


def build_search_facts(homes: Sequence[Job], attempts: Sequence[Attempt]) -> SearchFacts:
    """Build the stored facts of a search."""
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


def make_artefact_entries(lead: Job, facts: SearchFacts, kept: Sequence[Attempt]) -> list[ArtefactEntry]:
    """Build the artefact's entries for the kept texts of a search."""
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


class SearchFailed(Exception):
    """An attempt of a search ended in an error, and so do the cases that need the search."""

    def __init__(self, error: CaseError) -> None:
        super().__init__(error.message)
        self.error = replace(error, traceback=None)  # The attempt's record has it.


class SearchStopped(Exception):
    """The run is ending; the next run continues the search from here."""


MOST_THROWN_AWAY = 0.15
"""Expected share of queries made ahead of their turn for nothing, above which none is made ahead."""


class CountedAttempt(Protocol):
    """An attempt of a search."""

    queries: int
    """Runs of the agent that were begun."""


class AheadLimit:
    """Counts a run's queries, and bounds those that are expected to be made for nothing. Thread-safe."""

    def __init__(self) -> None:
        self.counted = 0
        """Queries of attempts that their search came to."""
        self._attempts = self._successes = 0
        self._dropped: list[CountedAttempt] = []
        self._ahead: dict[CountedAttempt, float] = {}
        """Attempt made ahead of its turn -> its queries that are expected to be made for nothing."""
        self._lock = threading.RLock()

    @property
    def thrown_away(self) -> int:
        """Queries of attempts that no search came to."""
        return sum(trial.queries for trial in self._dropped)

    @property
    def summary(self) -> str:
        """One line on the queries that were thrown away; `""` if there are none."""
        if not self.thrown_away:
            return ""
        queries = self.thrown_away + self.counted
        return (
            f"Made ahead and thrown away: {self.thrown_away:,} of {queries:,} queries of searches"
            f" ({self.thrown_away / queries:.1%}). They were paid for, and stand in the ledger and in no record."
        )

    def admit(self, trial: CountedAttempt, distance: int, queries: int) -> bool:
        """Return True if an attempt may be made `distance` attempts before its turn."""
        with self._lock:
            # Laplace's rule, as if one attempt in four had succeeded before the first.
            chance = (self._successes + 1) / (self._attempts + 4)
            risk = queries * (1 - (1 - chance) ** distance)
            expected = self.thrown_away + sum(self._ahead.values()) + risk
            if expected > MOST_THROWN_AWAY * (self.counted + expected):
                return False
            self._ahead[trial] = risk
            return True

    def count(self, trial: CountedAttempt, *, success: bool) -> None:
        """Count an attempt that its search came to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self.counted += trial.queries
            self._attempts += 1
            self._successes += success

    def drop(self, trial: CountedAttempt) -> None:
        """Count an attempt that its search did not come to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self._dropped.append(trial)
