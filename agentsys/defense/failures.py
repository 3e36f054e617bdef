"""`Failure`: what an agent is told instead of a value, as a closed set.

The texts are fixed, so a failure cannot carry a byte that an attacker chose.
"""

from __future__ import annotations

import json
from enum import Enum


class Failure(Enum):
    """Why a tool call brought no value."""

    TOOL_ERROR = "tool_error"
    """The tool ran and failed. Its message may hold text of the environment and is not passed on."""
    INVALID_JSON = "invalid_json"
    """The worker's reply held no JSON object."""
    SCHEMA_MISMATCH = "schema_mismatch"
    """The worker's object did not have the declared fields and types (`gate: schema` only)."""
    DENIED = "denied"
    """The validator refused a call, and cleaning the output did not help or is switched off."""
    BUDGET_EXHAUSTED = "budget_exhausted"
    """The worker used up its steps without an answer."""
    DEPTH_EXCEEDED = "depth_exceeded"
    """The call would have started a worker deeper than `max_depth`."""
    NO_INTENT = "no_intent"
    """The call declared no return value, or not in the grammar of `agentsys.defense.intent`."""
    WORKER_FAILED = "worker_failed"
    """The output could not be read at all: it was withheld, because it could not be cleaned."""

    @property
    def text(self) -> str:
        """The failure object as JSON text."""
        return json.dumps({"error": self.value})
