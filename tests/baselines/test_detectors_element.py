"""Detectors in a conversation, with a detector of the test's own: no model, no extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatMessage
from filter_results import FilterResults
from scripted_for_baselines import ScriptedModel, calls, runtime_returning

from agentsys.errors import ConfigError
from agentsys.models.chat import assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.detectors.defense import (
    ABORTED,
    NOTICE,
    DetectInjections,
    Detection,
    DetectionOptions,
    DetectorDefense,
    PhraseDetector,
    detect_injections,
)


class FlagsEvil:
    """0.9 of a text with "evil" in it, 0.5 of one with "tie", else 0.1; keeps what it was given."""

    name = "evil"

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def score(self, texts: Sequence[str]) -> list[float]:
        self.batches.append(list(texts))
        return [0.9 if "evil" in text else 0.5 if "tie" in text else 0.1 for text in texts]


class Windowed(FlagsEvil):
    """Reads word by word."""

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.score(text.split()) for text in texts]


def defense(detector: Any = None, **options: Any) -> DetectorDefense:
    found = detector or FlagsEvil()
    return DetectorDefense("evil", lambda: found, **options)


def run(built: DetectorDefense, runtime: FunctionsRuntime, *turns: Any) -> list[ChatMessage]:
    model = ScriptedModel([*turns, assistant("Done.")])
    return list(built.pipeline(model, get_suite("v1.2.2", "banking")).query("Go.", runtime)[3])


def test_the_worst_window_decides_and_is_named() -> None:
    assert detect_injections(Windowed(), ["a tie evil b", "a b"], 0.5) == [
        Detection(True, 0.9, 2, 4),
        Detection(False, 0.1, 0, 2),
    ]


def tool_message(text: str, error: str | None = None, **more: Any) -> Any:
    call = FunctionCall(function="a", args={}, id="1")
    content = [{"type": "text", "content": text}]
    return {
        "role": "tool",
        "content": content,
        "tool_call_id": "1",
        "tool_call": call,
        "error": error,
        **more,
    }


def element(detector: Any = None, **options: Any) -> DetectInjections:
    return DetectInjections(detector or FlagsEvil(), DetectionOptions(**options))


def seen(detect: DetectInjections, *messages: Any) -> Sequence[ChatMessage]:
    return FilterResults([detect]).query("Go.", FunctionsRuntime(), messages=list(messages))[3]


def test_error_text_is_read_and_withheld_unless_told_otherwise() -> None:
    failed = tool_message("", "ValueError: evil")
    assert seen(element(), calls("a"), failed)[1]["error"] == NOTICE
    assert seen(element(read_errors=False), calls("a"), failed)[1] == failed


def test_the_trace_keeps_score_and_what_was_withheld() -> None:
    tracer = Tracer()
    with use_tracer(tracer):
        run(defense(Windowed()), runtime_returning(a="so evil", b="fine"), calls("a", "b"))
    first, second = [node.decision for node in tracer.spans if node.kind == "detector"]
    assert first == {
        "detector": "evil",
        "injected": True,
        "probability": 0.9,
        "window": 1,
        "windows": 2,
        "unread_blocks": [],
        "raw": "so evil",
        "raw_error": None,
        "flagged": True,
    }
    assert (second["injected"], second["probability"]) == (False, 0.1)


def test_abort_ends_the_case_without_quoting_what_was_flagged() -> None:
    with pytest.raises(AbortAgentError) as caught:
        run(defense(on_injection="abort"), runtime_returning(a="evil plan", b="fine"), calls("a", "b"))
    texts = [text_of(message) for message in caught.value.messages]
    assert texts[-1] == ABORTED
    assert texts[-3:-1] == [NOTICE, "fine"]
    assert not any("evil plan" in text for text in texts)


def test_options_that_cannot_work_are_the_users_errors() -> None:
    with pytest.raises(ConfigError, match="Did you mean conversation"):
        defense(mode="full_conversation")
    with pytest.raises(ConfigError, match="on_injection"):
        defense(on_injection="explode")
    for threshold in (1.5, "0.5", True, float("nan")):
        with pytest.raises(ConfigError, match="threshold"):
            defense(threshold=threshold)
    with pytest.raises(ConfigError, match="no pattern"):
        PhraseDetector(["("])
