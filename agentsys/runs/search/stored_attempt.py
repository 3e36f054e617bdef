"""The attempts of a search as they are stored, one file each, and back again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from agentsys.attacks.search import Attempt, Judgement, AttemptPosition, Proposal
from agentsys.models.chat import Usage
from agentsys.models.trace import ModelCall, Span
from agentsys.records.schema import AttemptFacts, CaseRecord, StoredCall, StoredSpan
from agentsys.runs.plan import Job
from agentsys.runs.store import Store


@dataclass(frozen=True)
class StoredAttempt:
    """One attempt's file."""

    record: CaseRecord
    facts: AttemptFacts
    fields: dict[str, Any]
    """The top level of the file, as AgentDojo's loader reads it."""

    @property
    def is_finished(self) -> bool:
        """Whether it need not be made again."""
        return self.record.status == "ok"

    @property
    def attempt(self) -> Attempt:
        """The attempt as its search sees it."""
        return to_attempt(self.record, self.facts)


def load_attempt(store: Store, job: Job, number: int) -> StoredAttempt | None:
    """Read what is stored of a case's search under this number.

    None if nothing is, or nothing of this configuration.
    """
    try:
        fields = orjson.loads((store.root / job.case.attempt_key(number)).read_bytes())
        record = CaseRecord.model_validate(fields.pop("agentsys"))
    except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError):
        return None
    if record.attempt is None or record.case != job.case or not job.cell.made(record.config_hash):
        return None
    today = record.model_copy(update={"config_hash": job.cell.config_hash})
    return StoredAttempt(today, record.attempt, fields)


def to_attempt(record: CaseRecord, facts: AttemptFacts) -> Attempt:
    """An attempt's record as its search sees it."""
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
    """The candidate that was tried, with the attacker's first proposal where it came before."""
    ahead = None if facts.ahead is None else Proposal(**facts.ahead.model_dump())
    return Proposal(facts.text, facts.why, facts.refused, facts.fault, facts.proposed, facts.strategy, ahead)


def to_span(stored: StoredSpan) -> Span:
    """A stored span as part of a trace that goes on."""
    return Span(**{**dict(stored), "calls": [_to_model_call(call) for call in stored.calls]})


def _to_model_call(stored: StoredCall) -> ModelCall:
    usage = Usage.from_stored(stored)
    own = {name: value for name, value in stored if not hasattr(usage, name)}
    return ModelCall(usage=usage, **own)
