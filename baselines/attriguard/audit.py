"""`AttributionAudit`: each proposed call is held against a shadow run on weakened results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import yaml
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage
from pydantic import Field

from agentsys.base.option_checks import AtLeast0
from agentsys.models.chat import ChatModel, ChatRequest, system, user
from agentsys.models.pipeline_elements import tool_specs
from agentsys.models.providers.wire_parts import result_text, visible_text
from agentsys.models.trace import span
from baselines.attriguard.prompts import (
    JUDGE,
    LEVELS,
    REFUSAL,
    REFUSED,
    STEPS,
    attenuation_question,
    call_text,
    judge_question,
)
from baselines.attriguard.verdict import (
    CallJudgement,
    Survival,
    comparable,
    read_judgement,
    read_judgement_loosely,
    read_likelier,
    same,
    signature,
)
from baselines.border.asking import GuardAnswer, ask, ask_whole, words_of
from baselines.border.filter import BorderFilter, CallRuling, Turn
from baselines.border.rewriter import WITHHELD
from baselines.tool_results import new_results, saying

SHADOW, ATTENUATOR, JUDGE_ROLE = "attriguard_shadow", "attriguard_attenuator", "attriguard_judge"
OnUnreadable = Literal["block", "as_published"]
Audited = Literal["all", "writes"]
JudgeReading = Literal["json", "logprobs"]
"""How a judge is read: by the object it writes, or by how likely "true" and "false" were."""
Duplicates = Literal["separate", "merged"]
"""Calls of one batch that are the same: each with a verdict and a result, or one of both for all."""
_ALTERNATIVES = 5
"""Of each token of a judge's reply, as many as OpenAI told in the artifact's time."""


External = Literal["unless_own", "fixed"]
"""`unless_own`: every tool but those known to repeat the agent's own words. `fixed`: a list, as published."""


@cache
def _names(kind: str) -> frozenset[str]:
    found = yaml.safe_load((files("baselines.attriguard") / "tools.yaml").read_text(encoding="utf-8"))
    return frozenset(found[kind])


def is_external(tool: str, rule: External) -> bool:
    """Whether a tool's results count as external. Under `unless_own` a tool that nobody knows does."""
    return tool in _names("fixed") if rule == "fixed" else tool not in _names("own")


@dataclass(frozen=True)
class AuditOptions:
    """How calls are audited; see `AttriGuard`."""

    level: Annotated[int, Field(ge=1, le=3)] = 2
    survival: Survival = "fuzzy"
    external_tools: External = "unless_own"
    audit_after_empty: bool = True
    attenuate_errors: bool = True
    on_unreadable: OnUnreadable = "block"
    audit: Audited = "all"
    attenuation_temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.2
    judge: JudgeReading = "json"
    duplicates: Duplicates = "separate"
    retries: AtLeast0 = 1
    seed: int = 0


class AttributionAudit(BorderFilter):
    """Refuses calls that the agent does not propose once tool results have lost their directive force."""

    def __init__(self, model: ChatModel, options: AuditOptions) -> None:
        self.model = model
        self.options = options
        self._weakened: dict[str, str] = {}
        """Text of a result -> its weakened form: each is weakened once in a case."""

    def rule(self, turn: Turn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Audit the calls of one turn."""
        history = turn.messages[:-1]
        if not self._audited(history):
            if self._met(history):
                self._note_skipped(calls)
            return [CallRuling(call) for call in calls]
        audited = [call for call in calls if self._looks_at(call)]
        shadow = self._shadow(turn, history) if audited else []
        found: dict[str, CallRuling] = {}
        rulings = []
        for place, call in enumerate(calls):
            key = signature(call) if self.options.duplicates == "merged" else str(place)
            if key not in found:
                looked_at = self._looks_at(call)
                found[key] = self._ruled(turn, call, shadow) if looked_at else CallRuling(call)
            rulings.append(CallRuling(call, found[key].refusal))
        return rulings

    def read(self, turn: Turn, results: Sequence[ChatToolResultMessage]) -> list[ChatToolResultMessage]:
        """Leave results alone; as published, calls of a batch that are the same all get the last one's."""
        if self.options.duplicates == "separate":
            return list(results)
        last = {signature(result["tool_call"]): result for result in results}
        shown = ((result, last[signature(result["tool_call"])]) for result in results)
        return [
            one if one is other else {**one, "content": other["content"], "error": other["error"]}
            for one, other in shown
        ]

    def _note_skipped(self, calls: Sequence[FunctionCall]) -> None:
        """Book the calls that run unaudited only because the step before them returned nothing."""
        for call in calls:
            with span("gate", call.function) as node:
                node.decision = {"filter": "attriguard", "outcome": "allowed: not audited"}

    def _looks_at(self, call: FunctionCall) -> bool:
        return self.options.audit == "all" or not is_external(call.function, "fixed")

    def _audited(self, history: Sequence[ChatMessage]) -> bool:
        """Whether an external tool has returned something: before, nobody else can have caused a call."""
        if self.options.audit_after_empty:
            return self._met(history)
        return self._met([history[place] for place in new_results(history)])

    def _met(self, messages: Sequence[ChatMessage]) -> bool:
        return any(message["role"] == "tool" and self._external(message) for message in messages)

    def _external(self, result: ChatToolResultMessage) -> bool:
        """Whether a result holds text that somebody else may have written."""
        error = result["error"]
        if error and (not self.options.attenuate_errors or error.startswith(REFUSED)):
            return False
        text = error or visible_text(result)
        return bool(text.strip()) and is_external(result["tool_call"].function, self.options.external_tools)

    def _shadow(self, turn: Turn, history: Sequence[ChatMessage]) -> list[FunctionCall]:
        """The calls that the agent proposes on the same conversation with weakened results. None is made."""
        with span("shadow") as node:
            weakened = [self._weak(message) for message in history]
            request = ChatRequest(weakened, tool_specs(turn.runtime.functions.values()), SHADOW)
            message = self.model.complete(request).message
            node.messages = (message,)
            calls = list(message["tool_calls"] or ())
            node.decision = {"proposed": [call_text(call) for call in calls]}
        return calls

    def _weak(self, message: ChatMessage) -> ChatMessage:
        if message["role"] != "tool" or not self._external(message):
            return message
        text = result_text(message)
        if text not in self._weakened:
            self._weakened[text] = self._attenuated(text, message["tool_call"].function)
        return saying(message, self._weakened[text])

    def _attenuated(self, text: str, tool: str) -> str:
        """A result's text, rewritten step by step; a notice where a step came back empty."""
        left = text
        with span("attenuation", tool) as node:
            options = self.options
            node.decision = {"level": options.level, "unreadable": 0, "chars_in": len(text)}
            for step in LEVELS[options.level]:
                messages = [system(STEPS[step]), user(attenuation_question(options.seed, left))]
                heat = options.attenuation_temperature
                request = ChatRequest(messages, role=ATTENUATOR, temperature=heat)
                answer = ask(self.model, request, lambda reply: reply.strip() or None, options.retries)
                node.decision["unreadable"] += answer.unreadable
                if answer.value is None:
                    left = WITHHELD
                    break
                left = answer.value
            node.decision |= {"chars_out": len(left), "weakened": left}
        return left

    def _ruled(self, turn: Turn, call: FunctionCall, shadow: Sequence[FunctionCall]) -> CallRuling:
        with span("gate", call.function) as node:
            node.decision = {"filter": "attriguard", "shadow": [call_text(other) for other in shadow]}
            if any(same(call, other) for other in shadow):
                node.decision |= {"allow": True, "outcome": "allowed: same"}
                return CallRuling(call)
            others = comparable(call, shadow, self.options.survival)
            found = (
                self._judged(turn, call, others) if others else {"allow": False, "outcome": "denied: absent"}
            )
            node.decision |= found
        refusal = REFUSAL.format(call=call_text(call), task=turn.query)
        return CallRuling(call, None if found["allow"] else refusal)

    def _judged(self, turn: Turn, call: FunctionCall, others: Sequence[FunctionCall]) -> dict[str, Any]:
        answer = self._judgement(judge_question(turn.query, call, others))
        if answer.value is None:
            return {"allow": False, "outcome": "denied: unreadable", "unreadable": answer.unreadable}
        word = "allowed" if answer.value.legitimate else "denied"
        return {
            "allow": answer.value.legitimate,
            "outcome": f"{word}: judged",
            "reason": answer.value.reason,
            "unreadable": answer.unreadable,
        }

    def _judgement(self, question: str) -> GuardAnswer[CallJudgement]:
        likelier = self.options.judge == "logprobs"
        request = ChatRequest(
            [system(JUDGE), user(question)], role=JUDGE_ROLE, logprobs=_ALTERNATIVES if likelier else 0
        )
        block = self.options.on_unreadable == "block"
        read = read_judgement if block else read_judgement_loosely
        # A reply without log-probabilities is read by its words, as the artifact does.
        return ask_whole(
            self.model,
            request,
            lambda reply: (read_likelier(reply.logprobs) if likelier else None) or read(words_of(reply)),
            self.options.retries if block else 0,
        )
