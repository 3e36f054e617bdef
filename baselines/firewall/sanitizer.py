"""`OutputFirewall`, the Sanitizer: a result reaches the agent without what it tells the agent to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from agentdojo.types import ChatToolResultMessage

from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, system, user
from agentsys.models.loose_json import find_outer_objects
from baselines.border.asking import ask_guard
from baselines.border.filter import FilterTurn
from baselines.border.rewriter import ResultRewriter, RewrittenResult, unreadable_result
from baselines.firewall.minimizer import FirewallOptions
from baselines.firewall.prompts import SANITIZER, sanitizer_question

SANITIZER_ROLE = "firewall_sanitizer"
REPLY_SCHEMA: JsonSchema = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "was_safe": {"type": "boolean"},
        "sanitized_output": {"type": "string"},
    },
    "required": ["reasoning", "was_safe", "sanitized_output"],
    "additionalProperties": False,
}
_TRUTH = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True)
class SanitizedReply:
    """What a reply says of an output."""

    safe: bool
    text: str | None
    """The cleaned output; None where there is none, which only a safe one may do without."""


def read_sanitized(reply: str) -> SanitizedReply | None:
    """Read a reply; None if it does not say, or says two things."""
    found = {_comparison_key(sanitized): sanitized for value in find_outer_objects(reply) if (sanitized := _read_object(value))}
    return next(iter(found.values())) if len(found) == 1 else None


def _comparison_key(sanitized: SanitizedReply) -> tuple[bool, str | None]:
    return sanitized.safe, sanitized.text


def _read_object(value: Mapping[str, Any]) -> SanitizedReply | None:
    if not {"was_safe", "sanitized_output"} & value.keys():
        return None
    said = value.get("was_safe")
    safe = _TRUTH.get(said.strip().casefold()) if isinstance(said, str) else said
    text = value.get("sanitized_output")
    if isinstance(text, dict | list):
        text = str(yaml.safe_dump(text)).strip()
    elif text is not None and not isinstance(text, str):
        text = str(text)
    if not isinstance(safe, bool | None) or (text is None and safe is not True):
        return None
    return SanitizedReply(safe is True, text)


class OutputFirewall(ResultRewriter):
    """Asks for a clean form of each result. Knows the task and the one call, no more."""

    name = SANITIZER_ROLE

    def __init__(self, model: ChatModel, options: FirewallOptions) -> None:
        self.model, self.options = model, options

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Sanitize one result."""
        call = result["tool_call"]
        question = sanitizer_question(self.options.seed, turn.query, call.function, call.args, text)
        request = ChatRequest([system(SANITIZER), user(question)], role=SANITIZER_ROLE, reply_schema=REPLY_SCHEMA)
        answer = ask_guard(self.model, request, read_sanitized, self.options.retries)
        counted = answer.asked, answer.unreadable
        found = answer.value
        if found is None:
            return unreadable_result(text, self.options.on_unreadable, *counted)
        if found.text is None or (found.safe and self.options.on_safe == "original"):
            return RewrittenResult(text, "clean", *counted, flagged=not found.safe)
        lost = find_lost_tokens(text, found.text)
        return RewrittenResult(
            found.text,
            "clean" if found.text == text else "rewritten",
            *counted,
            facts={"was_safe": found.safe, "lost_data": lost},
            flagged=not found.safe,
        )


_DATA = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s'\"<>]+|\w*\d[\w]*(?:[.,:/-]\d+)*")
_MOST_LOST = 200
"""Data tokens listed in a record; an emptied file would list thousands."""


def find_lost_tokens(raw: str, shown: str) -> list[str]:
    """The addresses and tokens with a digit (ids, IBANs, amounts, dates) of a text that another lacks."""
    wanted = dict.fromkeys(token.rstrip(".,;:") for token in _DATA.findall(raw))
    there = set(_DATA.findall(shown)) | {token.rstrip(".,;:") for token in _DATA.findall(shown)}
    return [token for token in wanted if token not in there][:_MOST_LOST]
