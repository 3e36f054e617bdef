"""What a run tells while it goes on (`Listener`) and how it ended (`RunOutcome`)."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from agentsys.catalog import list_config_names

if TYPE_CHECKING:
    from agentsys.records.schema import CaseRecord
    from agentsys.runs.settings import Settings


class Listener(Protocol):
    """Is told how a run goes (the progress display, for one). Called from the calling thread only.

    Who inherits from it need say only what is done when a case was stored; the rest is passed over.
    """

    def finished(self, record: CaseRecord) -> None:
        """A case was stored."""

    def attempted(self, record: CaseRecord) -> None:
        """An attempt of a search was stored."""
        return

    def joined(self, processes: Sequence[int]) -> None:
        """Other processes (their numbers) are at work in the same log folder."""
        return

    def elsewhere(self) -> None:
        """Another process stored a case of this plan."""
        return

    def tick(self) -> None:
        """Time passed; nothing new. Called about once a second."""
        return

    def stopping(self, why: str, running: int) -> None:
        """No new case is started; `running` ones are being finished."""
        return


@dataclass(frozen=True)
class AbandonedCell:
    """A cell every further case of which would have failed alike."""

    labels: tuple[str, str, str]
    """Of model, defense and attack."""
    why: str
    left: int
    """Cases that were not started."""


@dataclass(frozen=True)
class ErrorCount:
    """One kind of error of a run."""

    kind: str
    cases: int
    message: str
    """Of the first of them."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    finished: int
    """Cases stored, errored ones included."""
    errors: int
    """Cases stored as errors."""
    fatal: str | None = None
    """Why the run stopped early (a bad key, a full disk); None otherwise."""
    interrupted: bool = False
    """Whether the user, or the system, stopped it."""
    signal: int = signal.SIGINT
    """By which signal, if so."""
    elsewhere: int = 0
    """Cases of the plan that other processes stored meanwhile."""
    tracebacks: tuple[str, ...] = ()
    """Of code that broke: one for each error kind and message, the first few."""
    budget: str | None = None
    """Which budget ended it; None: none did."""
    ended_cells: tuple[AbandonedCell, ...] = ()
    """The cells that were given up."""
    troubles: tuple[ErrorCount, ...] = ()
    """What errors there were, the most frequent first."""
    no_text: int = 0
    """Those of `errors` whose attack's search had no attacker to speak of."""


_MENDS = {
    "connection": "Is the server up, and model.base_url right?",
    "timeout": "Is the server up, and model.timeout_s long enough?",
    "bad_key": "Check the key.",
    "no_credit": "The account has no credit.",
    "unknown_model": "Check model.model_id and model.base_url.",
    "malformed_reply": "Does the server speak this API, and is model.base_url right?",
    "cut_reply": "Raise model.max_tokens, or the server's own bound.",
    "context_length": "The model's context is too small for this defense or suite.",
    "case_budget": "Raise budget.case_tokens or budget.case_seconds.",
    "cache_miss": "Is it the cache of a run with these very settings (cache.dir)?",
    "defense": "The defense's code broke; the records hold where.",
    "model": "The model adapter's code broke; the records hold where.",
}
_REPLAY_HINT = "Recorded runs replay under the defense and version they were made with"


def describe_likely_cause(troubles: Sequence[ErrorCount], settings: Sequence[Settings]) -> str:
    """One line: the most frequent error, and what to do about it."""
    if not troubles:
        return "no case was stored."
    worst, cases = troubles[0], sum(one.cases for one in troubles)
    mend = _mend_of_replay(settings) if worst.kind == "replay_diverged" else _MENDS.get(worst.kind, "")
    said = worst.message.splitlines()[0][:300] if worst.message else "no message"
    return f"{worst.cases} of {cases} cases end in {worst.kind} ({said}). {mend}".strip()


def _mend_of_replay(settings: Sequence[Settings]) -> str:
    """Published runs of some defenses are AgentDojo's own; our presets for those are `*_compat`."""
    presets, used = set(list_config_names("defense")), dict.fromkeys(one.labels["defense"] for one in settings)
    twins = [f"{defense}_compat" for defense in used if f"{defense}_compat" in presets]
    if twins:
        return f"{_REPLAY_HINT}: for published ones that is defense={','.join(twins)}."
    return f"{_REPLAY_HINT}: check defense= and benchmark.version=."
