"""What guarding one step cost beyond the agent's own question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentsys.models.chat import Usage
from agentsys.models.trace import ModelCall


def overhead(calls: Sequence[ModelCall], own: Usage) -> dict[str, Any]:
    """The overhead of a step, JSON-ready.

    Args:
        calls: The masked pass and the embedding requests, as booked.
        own: Tokens of the agent's own question in this step.

    Returns:
        Per role, calls and tokens; `ratio`: extra tokens per token of the agent's own question, None
        where that has none (a replayed model counts no tokens).
    """
    roles: dict[str, dict[str, int]] = {}
    for call in calls:
        sums = roles.setdefault(call.role, {"calls": 0, "prompt": 0, "completion": 0})
        sums["calls"] += 1
        sums["prompt"] += call.usage.prompt
        sums["completion"] += call.usage.completion
    extra = sum(call.usage.prompt + call.usage.completion for call in calls)
    asked = own.prompt + own.completion
    return {"roles": roles, "tokens": extra, "ratio": round(extra / asked, 3) if asked else None}
