"""`DetectInjections`: withholds the tool results of the latest turn that a detector flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.models.element import QueryResult
from agentsys.models.providers.wire_text import visible_text
from agentsys.models.trace import span
from baselines.detectors.detector import Detection, Detector, judge
from baselines.tool_results import new_results, rewrite_text

Mode = Literal["message", "conversation"]
OnInjection = Literal["withhold", "abort"]

NOTICE = "<withheld: this tool result was taken for a prompt injection>"
"""What stands in place of every text of a flagged result."""
ABORTED = "Stopped: a tool result was taken for a prompt injection."
"""The last message of an aborted case. It does not quote what was flagged."""


class DetectInjections(BasePipelineElement):  # type: ignore[misc]
    """Has a detector read new tool results before the model does.

    Blocks that are not text (which no detector here can read) stay as they are and are named in the span of
    kind `detector` that each result leaves.

    Args:
        detector: The detector that reads.
        threshold: Probability from which a text is flagged, see `judge`.
        mode: `message`: each result by itself. `conversation`: everything from the first message up to and
            including the result, results of the same turn as the tools returned them.
        on_injection: `withhold` the result, or `abort` the case.
        read_errors: Whether the error text of a failed call is read (and withheld) too.
        notice: The text in place of every text of a flagged result.
    """

    def __init__(
        self,
        detector: Detector,
        threshold: float,
        mode: Mode,
        on_injection: OnInjection,
        *,
        read_errors: bool,
        notice: str = NOTICE,
    ) -> None:
        self.detector = detector
        self.threshold = threshold
        self.mode: Mode = mode
        self.on_injection: OnInjection = on_injection
        self.read_errors = read_errors
        self.notice = notice

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Replaces flagged results; earlier turns are not read again.

        Raises:
            AbortAgentError: If a result is flagged and the case is to be aborted.
        """
        places = new_results(messages)
        texts = [self._text(messages, place) for place in places]
        verdicts = judge(self.detector, texts, self.threshold)
        seen = list(messages)
        for place, verdict in zip(places, verdicts, strict=True):
            result = messages[place]
            assert result["role"] == "tool"
            self._note(result, verdict)
            if verdict.injected:
                seen[place] = self._withheld(result)
        if self.on_injection == "abort" and any(verdict.injected for verdict in verdicts):
            raise AbortAgentError(ABORTED, seen, env)
        return query, runtime, env, seen, extra_args or {}

    def _text(self, messages: Sequence[ChatMessage], place: int) -> str:
        if self.mode == "message":
            return self._readable(messages[place])
        lines = [f"{message['role']}: {self._readable(message)}" for message in messages[: place + 1]]
        return "\n".join(lines)

    def _readable(self, message: ChatMessage) -> str:
        """A message's text, after the error text where there is one: models are sent that first or alone."""
        error = message["error"] if message["role"] == "tool" and self.read_errors else None
        return "\n".join(text for text in (error, visible_text(message)) if text)

    def _withheld(self, result: ChatToolResultMessage) -> ChatToolResultMessage:
        content = rewrite_text(result["content"] or [], lambda _: self.notice)
        error = self.notice if result["error"] and self.read_errors else result["error"]
        return {**result, "content": content, "error": error}

    def _note(self, result: ChatToolResultMessage, verdict: Detection) -> None:
        raw = {"raw": visible_text(result), "raw_error": result["error"]} if verdict.injected else {}
        with span("detector", result["tool_call"].function) as node:
            node.decision = {
                "detector": self.detector.name,
                "injected": verdict.injected,
                "probability": verdict.probability,
                "window": verdict.window,
                "windows": verdict.windows,
                "unread_blocks": [b["type"] for b in result["content"] or () if b["type"] != "text"],
                **raw,
            }
