"""Errors of asking a model, as a closed set of kinds with one consequence each.

The table is in docs/errors.md. Providers translate their SDK's exceptions into these kinds;
nobody else looks at an SDK exception.
"""

from __future__ import annotations

from enum import Enum

from agentsys.models.chat import Usage


class Consequence(Enum):
    """The harness's reaction to a model error."""

    RETRY = "retry"
    """Ask again with backoff; when the attempts are used up, the case ends as an error."""
    END_CASE = "end_case"
    """This case is recorded as an error; the run goes on."""
    END_RUN = "end_run"
    """Every further case would fail alike: stop the run, keep what is finished."""


class ErrorKind(Enum):
    """Why a model gave no usable reply."""

    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    MALFORMED_REPLY = "malformed_reply"
    CUT_REPLY = "cut_reply"
    CONTEXT_LENGTH = "context_length"
    CONTENT_REFUSED = "content_refused"
    BAD_REQUEST = "bad_request"
    CASE_BUDGET = "case_budget"
    CACHE_MISS = "cache_miss"
    REPLAY_DIVERGED = "replay_diverged"
    BAD_KEY = "bad_key"
    NO_CREDIT = "no_credit"
    UNKNOWN_MODEL = "unknown_model"

    @property
    def consequence(self) -> Consequence:
        """The consequence of an error of this kind."""
        return _CONSEQUENCES[self]


_CONSEQUENCES = {
    ErrorKind.RATE_LIMITED: Consequence.RETRY,
    ErrorKind.SERVER_ERROR: Consequence.RETRY,
    ErrorKind.OVERLOADED: Consequence.RETRY,
    ErrorKind.TIMEOUT: Consequence.RETRY,
    ErrorKind.CONNECTION: Consequence.RETRY,
    ErrorKind.MALFORMED_REPLY: Consequence.RETRY,
    ErrorKind.CUT_REPLY: Consequence.END_CASE,
    ErrorKind.CONTEXT_LENGTH: Consequence.END_CASE,
    ErrorKind.CONTENT_REFUSED: Consequence.END_CASE,
    ErrorKind.BAD_REQUEST: Consequence.END_CASE,
    ErrorKind.CASE_BUDGET: Consequence.END_CASE,
    ErrorKind.CACHE_MISS: Consequence.END_CASE,
    ErrorKind.REPLAY_DIVERGED: Consequence.END_CASE,
    ErrorKind.BAD_KEY: Consequence.END_RUN,
    ErrorKind.NO_CREDIT: Consequence.END_RUN,
    ErrorKind.UNKNOWN_MODEL: Consequence.END_RUN,
}


class ModelError(Exception):
    """A model gave no usable reply.

    Args:
        kind: Why, from the closed set.
        message: One line for the record; must not hold a key.
        retry_after_s: Seconds the provider asked us to wait, where it said so.
    """

    def __init__(self, kind: ErrorKind, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{kind.value}: {message}")
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.attempts = 1
        """Requests sent in all before giving up; set by the retry wrapper."""
        self.usage = Usage()
        """What the provider counted for the unusable answer (the retry wrapper: for all of them)."""
        self.cost_usd: float | None = 0.0
        """US dollars of that; None where the model has no price."""


class ModelCodeFailed(Exception):
    """A model's own code raised what no model may raise: a bug in an adapter; the cause is chained."""
