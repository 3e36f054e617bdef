"""Verdicts: whether a proposed call is one that the shadow run proposes too."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall

from agentsys.models.loose_json import find_object_with

SurvivalRule = Literal["strict", "fuzzy", "hyper_fuzzy"]
"""Which calls may survive besides the same: none, those of the same tool, or any, if the judge agrees."""
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}
_EXACT = 2**53
"""Whole numbers below this are the same as floats."""


def canonical_args(call: FunctionCall) -> str:
    """A call's arguments in one form: keys in order, numbers as numbers (1 is 1.0), texts as they are."""
    return json.dumps(_normalize_numbers(dict(call.args)), sort_keys=True, ensure_ascii=False, default=str)


def _normalize_numbers(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _EXACT:
        return float(value)
    if isinstance(value, dict):
        return {str(key): _normalize_numbers(item) for key, item in value.items()}
    return [_normalize_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def call_signature(call: FunctionCall) -> str:
    """A tool's name and a call's arguments in one form."""
    return f"{call.function} {canonical_args(call)}"


def is_same_call(call: FunctionCall, other: FunctionCall) -> bool:
    """Whether two calls are of the same tool with the same arguments."""
    return call_signature(call) == call_signature(other)


def comparable_calls(call: FunctionCall, shadow: Sequence[FunctionCall], survival: SurvivalRule) -> list[FunctionCall]:
    """The shadow's calls that a call which none of them equals may be compared with."""
    if survival == "strict":
        return []
    return [other for other in shadow if survival == "hyper_fuzzy" or other.function == call.function]


@dataclass(frozen=True)
class CallJudgement:
    """A judge's answer."""

    legitimate: bool
    reason: str


def read_judgement(reply: str) -> CallJudgement | None:
    """Read a judge's reply; None where it is not the object asked for."""
    found = find_object_with(reply, {"legitimate"})
    said = found["legitimate"] if found is not None else None
    legitimate = _TRUTH.get(said.strip().casefold()) if isinstance(said, str) else said
    if found is None or not isinstance(legitimate, bool):
        return None
    return CallJudgement(legitimate, str(found.get("reason", ""))[:500])


def read_truth_probability(tokens: Sequence[Mapping[str, float]]) -> CallJudgement | None:
    """Read a judge's reply as the artifact does where it can: "true" must be at least as likely as "false".

    Args:
        tokens: Per token of the reply the alternatives with their log-probabilities, the token itself first.

    Returns:
        None where no token is one of the two words, or the tokens are not told.
    """
    for token in tokens:
        likely: dict[str, float] = {}
        for text, logprob in token.items():
            word = text.strip(" \n\"':,{}").casefold()
            if word in ("true", "false"):
                likely[word] = max(logprob, likely.get(word, -math.inf))
        if likely:
            true, false = (likely.get(word, -math.inf) for word in ("true", "false"))
            return CallJudgement(true >= false, f"log-probability of true {true:.3f}, of false {false:.3f}")
    return None


def read_judgement_loosely(reply: str) -> CallJudgement:
    """As the artifact reads what is no object: legitimate where the word "true" stands anywhere."""
    return read_judgement(reply) or CallJudgement("true" in reply.casefold(), reply[:500])
