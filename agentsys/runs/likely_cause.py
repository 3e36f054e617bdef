"""Likely cause for which a run came to nothing, as far as its errors tell."""

from __future__ import annotations

from collections.abc import Sequence

from agentsys.catalog import known
from agentsys.runs.executors.outcome import Trouble
from agentsys.runs.settings import Settings

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
_REPLAY = "Recorded runs replay under the defense and version they were made with"


def likely_cause(troubles: Sequence[Trouble], settings: Sequence[Settings]) -> str:
    """One line: the most frequent error, and what to do about it."""
    if not troubles:
        return "no case was stored."
    worst, cases = troubles[0], sum(one.cases for one in troubles)
    mend = _of_a_replay(settings) if worst.kind == "replay_diverged" else _MENDS.get(worst.kind, "")
    said = worst.message.splitlines()[0][:300] if worst.message else "no message"
    return f"{worst.cases} of {cases} cases end in {worst.kind} ({said}). {mend}".strip()


def _of_a_replay(settings: Sequence[Settings]) -> str:
    """Published runs of some defenses are AgentDojo's own; our presets for those are `*_compat`."""
    presets, used = set(known("defense")), dict.fromkeys(one.labels["defense"] for one in settings)
    twins = [f"{defense}_compat" for defense in used if f"{defense}_compat" in presets]
    if twins:
        return f"{_REPLAY}: for published ones that is defense={','.join(twins)}."
    return f"{_REPLAY}: check defense= and benchmark.version=."
