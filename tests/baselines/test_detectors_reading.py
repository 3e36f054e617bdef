"""What of a detector needs no extra: windows, settings, memory, and the line that names what is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatMessage
from hydra.utils import instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from scripted_for_baselines import ScriptedModel, calls, runtime_returning
from scripted_for_border import FilterResults

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dir
from agentsys.models.chat import assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.detectors import classifier_defense
from baselines.detectors.classifier import (
    MOST_TOKENS_AT_ONCE,
    CachedDetector,
    Classifier,
    ClassifierSettings,
    WindowTokenizer,
    split_overlapping,
    wrap_tokenizer,
)
from baselines.detectors.classifier_defense import ClassifierDefense, load_classifier
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

SETTINGS = ClassifierSettings("somewhere/model", "0" * 40, "pooled", "SAFE")


@given(st.integers(0, 200), st.integers(2, 30), st.data())
def test_windows_leave_nothing_out_overlap_as_told_and_fit(count: int, size: int, data: Any) -> None:
    overlap = data.draw(st.integers(0, size // 2))
    ids = list(range(count))
    windows = split_overlapping(ids, size, overlap)
    assert {number for window in windows for number in window} == set(ids)
    assert all(len(window) <= size for window in windows)
    for left, right in pairwise(windows):
        assert left[len(left) - overlap :] == right[:overlap]
        assert len(left) == size
        assert len(right) > overlap


class Characters:
    """A tokenizer of characters: 1 in front, 2 behind, then code points."""

    pad_token_id = 0

    def __call__(
        self, text: str, add_special_tokens: bool = True, verbose: bool = True
    ) -> dict[str, list[int]]:
        ids = [ord(character) for character in text]
        return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}


def test_a_whole_text_is_one_pass_up_to_its_limit() -> None:
    tokens = wrap_tokenizer(Characters())
    settings = replace(SETTINGS, long_input="whole")
    assert [len(ids) for ids in tokens.windows("x" * 5_000, settings)] == [5_002]
    assert [len(ids) for ids in tokens.windows("x" * 50_000, settings)] == [MOST_TOKENS_AT_ONCE]


class Sums:
    """A network whose second logit is the sum of the ids that are not masked, above 200 a sure injection."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def logits(self, ids: Any, mask: Any) -> Any:
        self.shapes.append(ids.shape)
        return np.stack([np.full(len(ids), 200.0), (ids * mask).sum(axis=1)], axis=1)


def classifier(network: Any = None, **changes: Any) -> Classifier:
    tokens = WindowTokenizer(Characters(), [1], [2], padding=999)
    return Classifier(replace(SETTINGS, **changes), tokens, network or Sums(), safe=0)


TEXTS = ["a", "", "\x01" * 30, "ab", "zz", "\x02"]


@pytest.mark.parametrize("batch_size", [1, 2, 16])
def test_scores_come_back_in_the_order_of_the_texts_whatever_the_batches(batch_size: int) -> None:
    network = Sums()
    scores = classifier(network, batch_size=batch_size).score(TEXTS)
    assert scores == [classifier().score([text])[0] for text in TEXTS]
    assert [round(score) for score in scores] == [0, 0, 0, 0, 1, 0]
    assert max(shape[0] for shape in network.shapes) <= batch_size


def test_a_score_that_is_not_a_number_is_no_verdict() -> None:
    class Broken:
        def logits(self, ids: Any, mask: Any) -> Any:
            return np.full((len(ids), 2), np.nan)

    with pytest.raises(ArithmeticError, match="not a number"):
        classifier(Broken()).score(["a"])


class Counting:
    """Scores texts by length and keeps what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def score(self, texts: Sequence[str]) -> list[float]:
        return [windows[0] for windows in self.score_windows(texts)]

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [[len(text) / 100] for text in texts]


def test_memory_is_bounded_and_forgets_the_longest_unused() -> None:
    detector = Counting()
    remembered = CachedDetector(detector, most=2)
    for texts in (["a"], ["bb"], ["a"], ["ccc"], ["a"], ["bb"]):
        remembered.score(texts)
    assert detector.asked == ["a", "bb", "ccc", "bb"]
    assert remembered.score(["1", "22", "333"]) == [0.01, 0.02, 0.03]


def test_settings_that_cannot_work_are_the_users_errors() -> None:
    for changes, told in (
        ({"head": "pool"}, "Did you mean pooled"),
        ({"long_input": "window"}, "Did you mean windows"),
        ({"backend": "tf"}, "Unknown detector backend"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"stride": 400}, "at most half"),
        ({"max_length": 4, "stride": 0}, "8 or more"),
        ({"backend": "onnx"}, "needs onnx_file"),
    ):
        with pytest.raises(ConfigError, match=told):
            check_options(ClassifierSettings, "detector", {**asdict(SETTINGS), **changes})


@pytest.mark.parametrize("name", ["protectai", "protectai_compat", "piguard", "piguard_compat"])
def test_shipped_detectors_are_composed_without_the_extra_and_pin_a_commit(name: str) -> None:
    defense = instantiate(OmegaConf.load(shipped_config_dir() / "defense" / f"{name}.yaml"))
    assert isinstance(defense, ClassifierDefense)
    assert defense.name == name
    assert len(defense.settings.revision or "") == 40
    assert defense.settings.long_input == ("whole" if name.endswith("compat") else "windows")
    assert defense.options.read_errors is not name.endswith("compat")


@pytest.fixture
def fresh_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifier_defense, "_RECENT_FAILURES", {})


@pytest.mark.parametrize(
    ("backend", "package"), [("torch", "torch"), ("torch", "transformers"), ("onnx", "onnxruntime")]
)
def test_a_missing_package_is_one_line_that_names_the_extra(
    backend: Any, package: str, monkeypatch: pytest.MonkeyPatch, fresh_failures: None
) -> None:
    for name in {"torch", "transformers", "onnxruntime"}:
        monkeypatch.setitem(sys.modules, name, None if name == package else sys)
    settings = replace(SETTINGS, backend=backend, onnx_file="onnx/model.onnx")
    with pytest.raises(ConfigError) as caught:
        load_classifier(settings)
    assert f"needs {package}, not installed here" in str(caught.value)
    assert "pip install 'agentsys-bench[detectors]'" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_failure_holds_for_a_while_so_that_cases_side_by_side_do_not_each_wait_for_it(
    monkeypatch: pytest.MonkeyPatch, fresh_failures: None
) -> None:
    tried = []

    def fails(settings: ClassifierSettings) -> CachedDetector:
        tried.append(settings)
        raise ConfigError("no hub")

    monkeypatch.setattr(classifier_defense, "_load_cached", fails)
    for _ in range(3):
        with pytest.raises(ConfigError, match="no hub"):
            load_classifier(SETTINGS)
    assert len(tried) == 1
    monkeypatch.setattr(classifier_defense, "_FAILURE_KEPT_S", 0.0)
    with pytest.raises(ConfigError, match="no hub"):
        load_classifier(SETTINGS)
    assert len(tried) == 2


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
