"""`Failure`: what an agent is told instead of a value, as a closed set.

The texts are fixed, so a failure cannot carry a byte that an attacker chose, and no value can look like one
(`error` is reserved at the gate and in intents).
"""

from __future__ import annotations

import json
from enum import Enum

from agentsys.models.errors import ErrorKind, ModelError


class Failure(Enum):
    """Why a tool call brought no value."""

    TOOL_ERROR = "tool_error"
    """The tool ran and failed. Its message may hold text of the environment (see
    `agentsys.defense.tool_errors`).
    """
    INVALID_JSON = "invalid_json"
    """The worker's reply held no JSON object."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """The worker's object had a field `error`, or (`gate: schema`) not the declared fields and types."""
    DENIED = "denied"
    """A call was refused: the caller's own, or one inside the subtask, and cleaning the output did not
    help.
    """
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The subtask used up its steps or calls, or the turn had more calls than are allowed."""
    DEPTH_EXCEEDED = "depth_exceeded"
    """The call would have started a worker deeper than `max_depth`."""
    NO_INTENT = "no_intent"
    """The call declared no return value, or not in the grammar of `agentsys.defense.intent`."""
    INFEASIBLE = "infeasible"
    """The worker says that the output cannot give the fields."""
    WORKER_FAILED = "worker_failed"
    """The output could not be read: a model refused it or found it too long, or it could not be cleaned."""

    def as_text(self, *, tool_ran: bool, **more: str) -> str:
        """The failure object as JSON text.

        Args:
            tool_ran: Whether the tool was run, so that a caller knows what repeating the call would do.
            more: More that the caller may know; never words of an output.
        """
        return json.dumps({"error": self.value, "tool_ran": tool_ran, **more}, ensure_ascii=False)


_SUBTASK_ERRORS = frozenset({ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_REFUSED, ErrorKind.BAD_REQUEST})


def ends_subtask(error: ModelError) -> bool:
    """Whether a model's error comes from what it was given to read, and so ends a subtask and not the case.

    An attacker can cause these (an output that is too long or that a provider's filter refuses), and the main
    agent is not shown what caused them.
    """
    return error.kind in _SUBTASK_ERRORS and not isinstance(error, QuestionFailed)


class QuestionFailed(ModelError):
    """A question that is not about an output (which tools only read) failed: every case would fail alike."""

    def __init__(self, error: ModelError) -> None:
        super().__init__(error.kind, str(error), error.retry_after_s)
        self.attempts = error.attempts
