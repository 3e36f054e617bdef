"""`GuardedTurn`: the model's turn after tool results, asked twice; the place where MELON decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage, text_content_block_from_string

from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Consequence,
    ModelError,
    ToolSpec,
    Usage,
    assistant,
    user,
)
from agentsys.models.pipeline_elements import LoopState, LoopStep, tool_specs
from agentsys.models.trace import ModelCall, Span, span
from baselines.melon.bank import MaskedCallBank, CallMatch
from baselines.melon.call_text import write_compared_text
from baselines.melon.embedder import Embedder
from baselines.melon.masked_conversation import MASKED_ROLE, build_masked_conversation
from baselines.melon.prompts import NOTICE, PLACEHOLDER
from baselines.melon.settings import MelonSettings, RedactionScope
from baselines.tool_results import find_new_results, find_turn_start

ROLE = "agent"

_BANK = "melon_bank"
"""Where the bank of a task travels, in the pipeline's extra arguments."""


@dataclass(frozen=True)
class MelonVerdict:
    """The decision about one step."""

    blocked: bool
    match: CallMatch | None = None
    """The likest pair; None where there was nothing to compare."""
    failure: str | None = None
    """Kind of the model error that stands for a verdict (`on_failure: block`)."""


class GuardedTurn(LoopStep):
    """The model element of the tool loop. Holds no state: the bank travels with the conversation."""

    name = "melon"

    def __init__(
        self, model: ChatModel, embedder: Embedder, threshold: float, settings: MelonSettings
    ) -> None:
        self.model = model
        self.embedder = embedder
        self.threshold = threshold
        self.settings = settings

    def step(self, at: LoopState) -> LoopState:
        """One guarded turn; nothing happens where the last message is no tool result.

        Raises:
            ModelError: If a pass or the embedder failed; then no call is executed.
        """
        messages = at.messages
        if not messages or messages[-1]["role"] != "tool":
            return at
        bank = _get_bank(messages, at.extra)
        tools = tool_specs(at.runtime.functions.values())
        asked = [*messages, user(at.query)] if self.settings.repeat_request else list(messages)
        reply = self.model.complete(ChatRequest(asked, tools, ROLE))
        if self._judge_step(reply, messages, tools, bank).blocked:
            conversation = [*_redact_results(asked, self.settings.redact), assistant(NOTICE)]
        else:
            conversation = [*asked, reply.message]
        # A new dict: AgentDojo hands every task of a process the same one where the caller gave none.
        return replace(at, messages=conversation, extra={**at.extra, _BANK: bank})

    def _judge_step(
        self, reply: ChatReply, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], bank: MaskedCallBank
    ) -> MelonVerdict:
        """Masked pass, bank and comparison, under a span that holds exactly what they cost."""
        proposed = self._write_call_texts(reply.message["tool_calls"])
        with span("melon") as opened:
            opened.decision = {"proposed": proposed, "threshold": self.threshold}
            opened.decision["embedder"] = self.embedder.name
            try:
                verdict = self._compare_calls(proposed, messages, tools, bank, opened)
            except ModelError as error:
                opened.decision["failure"] = error.kind.value
                if self.settings.on_failure == "error" or error.kind.consequence is Consequence.END_RUN:
                    raise
                verdict = MelonVerdict(bool(proposed), failure=error.kind.value)
            _record_verdict(opened, verdict, bank, reply)
        return verdict

    def _compare_calls(
        self,
        proposed: Sequence[str],
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSpec],
        bank: MaskedCallBank,
        opened: Span,
    ) -> MelonVerdict:
        if not proposed and self.settings.skip_last_masked:
            return MelonVerdict(False)
        conversation = build_masked_conversation(messages, show_errors=self.settings.show_errors)
        masked = self.model.complete(ChatRequest(conversation, tools, MASKED_ROLE)).message
        # Its words are kept for the record; only its calls count, and none of them is ever made.
        opened.messages = (masked,)
        bank.add_calls(self._write_call_texts(masked["tool_calls"]))
        match = bank.find_nearest(proposed, self.embedder)
        return MelonVerdict(match is not None and match.similarity > self.threshold, match)

    def _write_call_texts(self, calls: Iterable[FunctionCall] | None) -> list[str]:
        options = self.settings
        return [write_compared_text(call, options.key_arguments, options.call_style) for call in calls or ()]


def _get_bank(messages: Sequence[ChatMessage], extra: dict[str, Any]) -> MaskedCallBank:
    """The task's bank; a new one at the first tool step, whatever an earlier task has left behind."""
    first = not any(message["role"] == "tool" for message in messages[: find_turn_start(messages)])
    kept = extra.get(_BANK)
    return kept if isinstance(kept, MaskedCallBank) and not first else MaskedCallBank()


def _record_verdict(opened: Span, verdict: MelonVerdict, bank: MaskedCallBank, reply: ChatReply) -> None:
    """Note what the record keeps of a step. `allow` is only there where a call was to be judged."""
    if opened.decision["proposed"]:
        opened.decision["allow"] = not verdict.blocked
    if verdict.match is not None:
        opened.decision["nearest"] = dict(vars(verdict.match))
    opened.decision["bank"] = list(bank.masked)
    opened.decision["overhead"] = _overhead_data(opened.calls, reply.usage)


def _redact_results(messages: Sequence[ChatMessage], redact: RedactionScope) -> list[ChatMessage]:
    """The conversation with tool results of the latest step replaced; the messages given stay as they are.

    Args:
        messages: The conversation, which may end with a repeated request.
        redact: `step`: all of them, with their error texts. `newest`: the content of the last one.
    """
    results = find_new_results(messages)
    chosen = results if redact == "step" else results[-1:]
    new = list(messages)
    for index in chosen:
        message = messages[index]
        assert message["role"] == "tool"
        new[index] = _replace_with_placeholder(message, keep_error=redact == "newest")
    return new


def _replace_with_placeholder(message: ChatToolResultMessage, *, keep_error: bool) -> ChatToolResultMessage:
    error = message["error"]
    return {
        **message,
        "content": [text_content_block_from_string(PLACEHOLDER)],
        "error": error if keep_error or error is None else PLACEHOLDER,
    }


def _overhead_data(calls: Sequence[ModelCall], own: Usage) -> dict[str, Any]:
    """The overhead of a step, JSON-ready; `own` are the tokens of the agent's own question.

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
