"""`Detector`: the shape of a detector, and the rule that turns its scores into verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@runtime_checkable
class Detector(Protocol):
    """Says of texts how likely they hold an injection. Must be usable from many threads at once."""

    @property
    def name(self) -> str:
        """The name in records, e.g. the model's id and revision."""
        ...

    def score(self, texts: Sequence[str]) -> list[float]:
        """One probability (0.0 to 1.0) per text that it holds an injection; none depends on the others."""
        ...


@runtime_checkable
class WindowedDetector(Detector, Protocol):
    """A detector that reads long texts piece by piece and can tell which piece was worst."""

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        """Per text the probabilities of its windows, in order; at least one each."""
        ...


@dataclass(frozen=True)
class Detection:
    """A detector's verdict on one text."""

    injected: bool
    probability: float
    """That the text holds an injection: the highest of its windows."""
    window: int = 0
    """Index of the window with that probability."""
    windows: int = 0
    """Windows read; 0 where the text is blank and nothing was read."""


BLANK_DETECTION = Detection(False, 0.0)
"""The verdict on a text with nothing in it."""


def detect_injections(detector: Detector, texts: Sequence[str], threshold: float) -> list[Detection]:
    """Verdicts on texts, in order.

    Args:
        detector: The detector that reads them, all in one call.
        texts: The texts; blank ones are not read.
        threshold: A text is injected if its safety, one minus the probability, is below this. A tie is safe.

    Source: agentdojo 0.1.35, `pi_detector.py` (`safety < threshold`).
    """
    read = [index for index, text in enumerate(texts) if text.strip()]
    if not read:
        return [BLANK_DETECTION] * len(texts)
    scores = _score_windows(detector, [texts[index] for index in read])
    verdicts = dict(zip(read, (_combine_windows(windows, threshold) for windows in scores), strict=True))
    return [verdicts.get(index, BLANK_DETECTION) for index in range(len(texts))]


def _score_windows(detector: Detector, texts: Sequence[str]) -> list[list[float]]:
    if isinstance(detector, WindowedDetector):
        return detector.score_windows(texts)
    return [[probability] for probability in detector.score(texts)]


def _combine_windows(windows: Sequence[float], threshold: float) -> Detection:
    worst = max(range(len(windows)), key=windows.__getitem__)
    probability = windows[worst]
    return Detection(1.0 - probability < threshold, probability, worst, len(windows))
