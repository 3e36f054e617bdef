"""`ArmorGuard`: asks of each result whether it holds an injection, and cuts out what is quoted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatToolResultMessage

from agentsys.base.option_checks import AtLeast0, AtLeast1
from agentsys.models.chat import ChatModel, ChatRequest, assistant, system, text_of, user
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, find_injected_passages
from baselines.border.asking import ask_guard, wrap_in_fences, draw_fence_word, read_fenced_text
from baselines.border.filter import FilterTurn
from baselines.border.leaves import ReadUnit, read_leaves
from baselines.border.rewriter import WITHHELD, OnDoubt, ResultRewriter, RewrittenResult, unreadable_result
from baselines.promptarmor.prompts import MARKER, QUESTIONS, ArmorWording
from baselines.promptarmor.removal import RemovalRule, remove_quotation

ROLE = "promptarmor_guard"

_DECORATION = " \t\r\n*_`\"'#>“”‘’"
_FIRST = re.compile(r"(?:answer\W{1,4})?(yes|no)\b", re.IGNORECASE)
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`"}


@dataclass(frozen=True)
class ArmorOptions:
    """How the guard asks and what follows; see `PromptArmor`."""

    removal: RemovalRule = "fuzzy"
    gap: AtLeast0 = 40
    unit: ReadUnit = "result"
    on_unmatched: OnDoubt = "withhold"
    on_unreadable: OnDoubt = "withhold"
    retries: AtLeast0 = 1
    prompt: ArmorWording = "short"
    delimit: bool = False
    max_tokens: AtLeast1 | None = None
    seed: int = 0


@dataclass(frozen=True)
class ArmorVerdict:
    """What a guard's reply says."""

    injected: bool
    quotation: str = ""
    """What it quotes; empty where it quotes nothing."""


def read_armor_verdict(reply: str) -> ArmorVerdict | None:
    """Read a reply; None if it does not begin with Yes or No, or says No and quotes all the same."""
    text = reply.lstrip(_DECORATION)
    first = _FIRST.match(text)
    if first is None:
        return None
    _, marker, quotation = text.partition(MARKER)
    if first[1].casefold() == "no":
        return None if marker else ArmorVerdict(False)
    return ArmorVerdict(True, _strip_quoting(quotation)) if marker else ArmorVerdict(True)


def _strip_quoting(quotation: str) -> str:
    """A quotation without the emphasis, the fence or the quotes that a model put around it."""
    text = quotation.strip().removeprefix("**").strip()
    fenced = _FENCE.match(text)
    if fenced is not None:
        text = fenced[1].strip()
    if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
        text = text[1:-1]
    return text.strip()


class ArmorGuard(ResultRewriter):
    """Asks about the data alone: it knows neither the user's task nor the call."""

    name = ROLE

    def __init__(self, model: ChatModel, options: ArmorOptions) -> None:
        self.model = model
        self.options = options

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Clean one result, as a whole or string by string."""
        found: list[RewrittenResult] = []

        def cleaned(piece: str) -> str:
            if not piece.strip():
                return piece
            found.append(self._clean_text(piece))
            return found[-1].text

        if self.options.unit == "result":
            cleaned(text)
            return found[0]
        shown = read_leaves(text).replace_strings(cleaned)
        return RewrittenResult(
            shown,
            _worst_outcome([one.outcome for one in found]),
            sum(one.asked for one in found),
            sum(one.unreadable for one in found),
            {"strings": [dict(one.facts) for one in found if one.outcome != "clean"]},
            _combine_verdicts([one.flagged for one in found]),
        )

    def _clean_text(self, text: str) -> RewrittenResult:
        answer = ask_guard(self.model, self._write_question(text), read_armor_verdict, self.options.retries)
        counted = answer.asked, answer.unreadable
        if answer.value is None:
            return unreadable_result(text, self.options.on_unreadable, *counted)
        if not answer.value.injected:
            return RewrittenResult(text, "clean", *counted, flagged=False)
        left, outcome, facts = self._remove_from_text(text, answer.value.quotation)
        return RewrittenResult(left, outcome, *counted, facts, flagged=True)

    def _remove_from_text(self, text: str, quotation: str) -> tuple[str, str, dict[str, Any]]:
        """What is left of a text in which an injection was found, the outcome, and facts for the record."""
        facts: dict[str, Any] = {"quotation": quotation}
        if self.options.removal == "withhold":
            return WITHHELD, "withheld", facts
        left = remove_quotation(text, quotation, fuzzy=self.options.removal == "fuzzy", gap=self.options.gap)
        if left is None:
            facts["unmatched"] = True
            keep = self.options.on_unmatched == "keep"
            return (text, "unmatched", facts) if keep else (WITHHELD, "withheld", facts)
        removed = len(text) - len(left)
        facts |= {"removed": removed, "share_removed": round(removed / len(text), 4)}
        return left.strip(), "rewritten", facts

    def _write_question(self, text: str) -> ChatRequest:
        options = self.options
        data = wrap_in_fences(draw_fence_word(options.seed, text), text) if options.delimit else text
        messages = [system(QUESTIONS[options.prompt]), user(data)]
        return ChatRequest(messages, role=ROLE, max_tokens=options.max_tokens)


_ORDER = ("withheld", "rewritten", "unmatched", "unreadable", "clean")


def _combine_verdicts(verdicts: Sequence[bool | None]) -> bool | None:
    """Of a result whose strings were judged: flagged if one is; not read if none is and one was not."""
    if any(verdicts):
        return True
    return None if None in verdicts else False


def _worst_outcome(outcomes: list[str]) -> str:
    return min(outcomes, key=_ORDER.index, default="clean")


def play_armor_guard(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Yes with the first passage that was found, else No. It quotes one text, as the question asks for."""
    text = text_of(request.messages[-1])
    found = find_injected_passages(read_fenced_text(text) or text, ROLE, knowledge)
    return assistant(f"Yes. {MARKER} {found[0]}" if found else "No")


ROLES: dict[str, SimulatedRole] = {ROLE: play_armor_guard}
