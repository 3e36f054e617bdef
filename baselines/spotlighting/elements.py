"""Pipeline elements that mark tool results, and take copied marks out of what the model writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatToolResultMessage

from agentsys.models.chat import text_of
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.models.trace import current_tracer, span
from baselines.spotlighting.marking import Datamarking, Marking, MarkedText
from baselines.tool_results import rewrite_new_results, rewrite_text_blocks


class MarkResults(LoopStep):
    """Marks every text of the latest turn's tool results, errors included.

    Each result leaves a span of kind `spotlight` with the raw text and error, and the number of
    forged marks that were taken out.
    """

    def __init__(self, marking: Marking) -> None:
        self.marking = marking

    def step(self, at: LoopState) -> LoopState:
        """Marks results after the tools ran and before the model reads them."""
        return replace(at, messages=rewrite_new_results(at.messages, self._mark_result))

    def _mark_result(self, result: ChatToolResultMessage) -> ChatToolResultMessage:
        removed = 0

        def mark(text: str) -> str:
            nonlocal removed
            marked = self.marking.mark(text)
            removed += marked.count
            # Marked and encoded text is read all the same; only a search for it would miss it.
            current_tracer().text_rewritten(text, marked.text)
            return marked.text

        # An error has its own field, and models are sent that instead of the content.
        error = mark(result["error"]) if result["error"] else result["error"]
        content = rewrite_text_blocks(result["content"] or [], mark)
        with span("spotlight", result["tool_call"].function) as node:
            node.decision = {"raw": text_of(result), "raw_error": result["error"], "marks_removed": removed}
        return {**result, "content": content, "error": error}


class UnmarkArguments(LoopStep):
    """Writes spaces for marks in the arguments of the calls about to be run.

    Without it a value copied from a result would name a file or a person that does not exist.
    A call that was changed leaves a span of kind `unmark` with the number of marks.
    """

    def __init__(self, marking: Datamarking) -> None:
        self.marking = marking

    def step(self, at: LoopState) -> LoopState:
        """Rewrites the last message where it is an assistant's with tool calls."""
        last = at.messages[-1] if at.messages else None
        if last is None or last["role"] != "assistant" or not last["tool_calls"]:
            return at
        return replace(at, messages=[*at.messages[:-1], self._unmark_message(last)])

    def _unmark_message(self, message: ChatAssistantMessage) -> ChatAssistantMessage:
        return {**message, "tool_calls": [self._unmark_call(call) for call in message["tool_calls"] or []]}

    def _unmark_call(self, call: FunctionCall) -> FunctionCall:
        args, count = unmark_value(dict(call.args), self.marking)
        if not count:
            return call
        with span("unmark", call.function) as node:
            node.decision = {"marks_removed": count}
        return call.model_copy(update={"args": args})


class UnmarkAnswer(LoopStep):
    """Writes spaces for marks in the final answer, which is read by people and by utility checks."""

    def __init__(self, marking: Datamarking) -> None:
        self.marking = marking

    def step(self, at: LoopState) -> LoopState:
        """Rewrites the last message where it is an assistant's; a span `unmark` says how many marks went."""
        last = at.messages[-1] if at.messages else None
        count = self.marking.unmark(text_of(last)).count if last and last["role"] == "assistant" else 0
        if last is None or last["role"] != "assistant" or not count:
            return at
        with span("unmark", "answer") as node:
            node.decision = {"marks_removed": count}
        return replace(at, messages=[*at.messages[:-1], self._unmark_message(last)])

    def _unmark_message(self, message: ChatAssistantMessage) -> ChatAssistantMessage:
        blocks = rewrite_text_blocks(message["content"] or [], lambda text: self.marking.unmark(text).text)
        return {**message, "content": blocks}


def unmark_value(value: Any, marking: Datamarking) -> tuple[Any, int]:
    """A JSON-like value with marks in its strings turned into spaces, and how many there were."""
    match value:
        case str():
            plain: MarkedText = marking.unmark(value)
            return plain.text, plain.count
        case list():
            items = [unmark_value(item, marking) for item in value]
            return [item for item, _ in items], sum(count for _, count in items)
        case dict():
            pairs = {key: unmark_value(item, marking) for key, item in value.items()}
            return {key: item for key, (item, _) in pairs.items()}, sum(count for _, count in pairs.values())
        case _:
            return value, 0
