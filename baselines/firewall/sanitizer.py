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
from baselines.border.asking import ask
from baselines.border.filter import Turn
from baselines.border.rewriter import ResultRewriter, Rewriting, unread
from baselines.firewall.minimizer import FirewallOptions
from baselines.firewall.prompts import SANITIZER, sanitizer_question

ROLE = "firewall_sanitizer"
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
class Sanitized:
    """What a reply says of an output."""

    safe: bool
    text: str | None
    """The cleaned output; None where there is none, which only a safe one may do without."""


def read_sanitized(reply: str) -> Sanitized | None:
    """Read a reply; None if it does not say, or says two things."""
    found = {_key(sanitized): sanitized for value in find_outer_objects(reply) if (sanitized := _of(value))}
    return next(iter(found.values())) if len(found) == 1 else None


def _key(sanitized: Sanitized) -> tuple[bool, str | None]:
    return sanitized.safe, sanitized.text


def _of(value: Mapping[str, Any]) -> Sanitized | None:
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
    return Sanitized(safe is True, text)


class OutputFirewall(ResultRewriter):
    """Asks for a clean form of each result. Knows the task and the one call, no more."""

    name = ROLE

    def __init__(self, model: ChatModel, options: FirewallOptions) -> None:
        self.model, self.options = model, options

    def rewritten(self, turn: Turn, result: ChatToolResultMessage, text: str) -> Rewriting:
        """Sanitize one result."""
        call = result["tool_call"]
        question = sanitizer_question(self.options.seed, turn.query, call.function, call.args, text)
        request = ChatRequest([system(SANITIZER), user(question)], role=ROLE, reply_schema=REPLY_SCHEMA)
        answer = ask(self.model, request, read_sanitized, self.options.retries)
        counted = answer.asked, answer.unreadable
        found = answer.value
        if found is None:
            return unread(text, self.options.on_unreadable, *counted)
        if found.text is None or (found.safe and self.options.on_safe == "original"):
            return Rewriting(text, "clean", *counted, flagged=not found.safe)
        lost = lost_tokens(text, found.text)
        return Rewriting(
            found.text,
            "clean" if found.text == text else "rewritten",
            *counted,
            facts={"was_safe": found.safe, "lost_data": lost},
            flagged=not found.safe,
        )


_DATA = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s'\"<>]+|\w*\d[\w]*(?:[.,:/-]\d+)*")
_MOST_LOST = 200
"""Data tokens listed in a record; an emptied file would list thousands."""


def lost_tokens(raw: str, shown: str) -> list[str]:
    """The addresses and tokens with a digit (ids, IBANs, amounts, dates) of a text that another lacks."""
    wanted = dict.fromkeys(token.rstrip(".,;:") for token in _DATA.findall(raw))
    there = set(_DATA.findall(shown)) | {token.rstrip(".,;:") for token in _DATA.findall(shown)}
    return [token for token in wanted if token not in there][:_MOST_LOST]
