"""`DetectInjections`: withholds the tool results of the latest turn that a detector flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from agentdojo.types import ChatMessage, ChatToolResultMessage
from pydantic import Field

from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import current_tracer, span
from baselines.border.filter import BoundaryFilter, EndCase, FilterTurn
from baselines.detectors.detector import Detection, Detector, detect_injections
from baselines.package_wording import PackageWording
from baselines.tool_results import rewrite_text_blocks

NOTICE = "<withheld: this tool result was taken for a prompt injection>"
"""What stands in place of every text of a flagged result."""
ABORTED = "Stopped: a tool result was taken for a prompt injection."
"""The last message of an aborted case. It does not quote what was flagged."""


@dataclass(frozen=True)
class DetectionOptions:
    """How results are read and what follows; see `DetectorDefense` for the first and the last."""

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    mode: Literal["message", "conversation"] = "message"
    """`message`: each result by itself. `conversation`: everything from the first message up to and including
    the result, results of the same turn as the tools returned them."""
    on_injection: Literal["withhold", "abort"] = "withhold"
    """`withhold` the result, or `abort` the case."""
    read_errors: bool = True
    """Whether the error text of a failed call is read (and withheld) too."""
    wording: PackageWording = "own"


class DetectInjections(BoundaryFilter):
    """Has a detector read tool results before the agent does, all those of a turn in one batch.

    Blocks that are not text (which no detector here can read) stay as they are and are named in the span of
    kind `detector` that each result leaves.
    """

    def __init__(self, detector: Detector, options: DetectionOptions, notice: str = NOTICE) -> None:
        self.detector = detector
        self.options = options
        self.notice = notice

    def filter_results(self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]) -> list[ChatToolResultMessage]:
        """Replace flagged results.

        Raises:
            EndCase: If a result is flagged and the case is to be aborted.
        """
        texts = [self._text_to_read(turn, results[: place + 1]) for place in range(len(results))]
        verdicts = detect_injections(self.detector, texts, self.options.threshold)
        seen = []
        for result, verdict in zip(results, verdicts, strict=True):
            self._record_detection(result, verdict)
            seen.append(self._withhold_result(result) if verdict.injected else result)
        if self.options.on_injection == "abort" and any(verdict.injected for verdict in verdicts):
            raise EndCase(ABORTED, seen)
        return seen

    def _text_to_read(self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]) -> str:
        """What is read for the last of these results."""
        if self.options.mode == "message":
            return self._message_text(results[-1])
        messages = [*turn.messages, *results]
        return "\n".join(f"{message['role']}: {self._message_text(message)}" for message in messages)

    def _message_text(self, message: ChatMessage) -> str:
        """A message's text, after the error text where there is one: models are sent that first or alone."""
        error = message["error"] if message["role"] == "tool" and self.options.read_errors else None
        return "\n".join(text for text in (error, visible_text(message)) if text)

    def _withhold_result(self, result: ChatToolResultMessage) -> ChatToolResultMessage:
        content = rewrite_text_blocks(result["content"] or [], lambda _: self.notice)
        error = self.notice if result["error"] and self.options.read_errors else result["error"]
        return {**result, "content": content, "error": error}

    def _record_detection(self, result: ChatToolResultMessage, verdict: Detection) -> None:
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
            if verdict.windows:
                current_tracer().guard_judged(node, self._message_text(result), verdict.injected)
