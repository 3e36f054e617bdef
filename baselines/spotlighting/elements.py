"""Pipeline elements that mark tool results, and take copied marks out of what the model writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage

from agentsys.models.chat import text_of
from agentsys.models.element import QueryResult
from agentsys.models.trace import current_tracer, span
from baselines.spotlighting.marking import Datamarking, Marking, Rewritten
from baselines.tool_results import rewrite_new_results, rewrite_text


class Spotlight(BasePipelineElement):  # type: ignore[misc]
    """Marks every text of the latest turn's tool results, errors included.

    Each result leaves a span of kind `spotlight` with the raw text and error, and the number of
    forged marks that were taken out.
    """

    def __init__(self, marking: Marking) -> None:
        self.marking = marking

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Marks results after the tools ran and before the model reads them."""
        return query, runtime, env, rewrite_new_results(messages, self._marked), extra_args or {}

    def _marked(self, result: ChatToolResultMessage) -> ChatToolResultMessage:
        removed = 0

        def mark(text: str) -> str:
            nonlocal removed
            marked = self.marking.mark(text)
            removed += marked.count
            # Marked and encoded text is read all the same; only a search for it would miss it.
            current_tracer().rewrote(text, marked.text)
            return marked.text

        # An error has its own field, and models are sent that instead of the content.
        error = mark(result["error"]) if result["error"] else result["error"]
        content = rewrite_text(result["content"] or [], mark)
        with span("spotlight", result["tool_call"].function) as node:
            node.decision = {"raw": text_of(result), "raw_error": result["error"], "marks_removed": removed}
        return {**result, "content": content, "error": error}


class UnmarkArguments(BasePipelineElement):  # type: ignore[misc]
    """Writes spaces for marks in the arguments of the calls about to be run.

    Without it a value copied from a result would name a file or a person that does not exist.
    A call that was changed leaves a span of kind `unmark` with the number of marks.
    """

    def __init__(self, marking: Datamarking) -> None:
        self.marking = marking

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Rewrites the last message where it is an assistant's with tool calls."""
        if messages and messages[-1]["role"] == "assistant" and messages[-1]["tool_calls"]:
            messages = [*messages[:-1], self._unmarked(messages[-1])]
        return query, runtime, env, messages, extra_args or {}

    def _unmarked(self, message: ChatAssistantMessage) -> ChatAssistantMessage:
        return {**message, "tool_calls": [self._unmarked_call(call) for call in message["tool_calls"] or []]}

    def _unmarked_call(self, call: FunctionCall) -> FunctionCall:
        args, count = unmarked_value(dict(call.args), self.marking)
        if not count:
            return call
        with span("unmark", call.function) as node:
            node.decision = {"marks_removed": count}
        return call.model_copy(update={"args": args})


class UnmarkAnswer(BasePipelineElement):  # type: ignore[misc]
    """Writes spaces for marks in the final answer, which is read by people and by utility checks."""

    def __init__(self, marking: Datamarking) -> None:
        self.marking = marking

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Rewrites the last message where it is an assistant's; a span `unmark` says how many marks went."""
        if messages and messages[-1]["role"] == "assistant":
            count = self.marking.unmark(text_of(messages[-1])).count
            if count:
                with span("unmark", "answer") as node:
                    node.decision = {"marks_removed": count}
                messages = [*messages[:-1], self._unmarked(messages[-1])]
        return query, runtime, env, messages, extra_args or {}

    def _unmarked(self, message: ChatAssistantMessage) -> ChatAssistantMessage:
        blocks = rewrite_text(message["content"] or [], lambda text: self.marking.unmark(text).text)
        return {**message, "content": blocks}


def unmarked_value(value: Any, marking: Datamarking) -> tuple[Any, int]:
    """A JSON-like value with marks in its strings turned into spaces, and how many there were."""
    match value:
        case str():
            plain: Rewritten = marking.unmark(value)
            return plain.text, plain.count
        case list():
            items = [unmarked_value(item, marking) for item in value]
            return [item for item, _ in items], sum(count for _, count in items)
        case dict():
            pairs = {key: unmarked_value(item, marking) for key, item in value.items()}
            return {key: item for key, (item, _) in pairs.items()}, sum(count for _, count in pairs.values())
        case _:
            return value, 0
