"""`Classifier`: token windows in batches through a model, to probabilities. `Remembered` shares it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from baselines.detectors.detector import WindowedDetector
from baselines.detectors.settings import ClassifierSettings
from baselines.detectors.tokens import TokenIds, WindowTokenizer

MOST_CACHED_TEXTS = 20_000
"""Texts whose scores are kept; tool results repeat from case to case."""


class ClassifierNetwork(Protocol):
    """A model that is ready to run, on torch or on ONNX runtime."""

    def logits(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[Any]:
        """Shape `(n, labels)` from token ids and attention mask of shape `(n, length)`."""
        ...


class Classifier:
    """A detector made of a tokenizer and a network. One thread at a time; see `Remembered`.

    Args:
        settings: The settings that say how texts are read.
        tokens: The tokenizer.
        network: The model.
        safe: Index of the safe label among the logits.
    """

    def __init__(self, settings: ClassifierSettings, tokens: WindowTokenizer, network: ClassifierNetwork, safe: int) -> None:
        self.settings = settings
        self.tokens = tokens
        self.network = network
        self.safe = safe

    @property
    def name(self) -> str:
        """Model and revision."""
        return self.settings.name

    def score(self, texts: Sequence[str]) -> list[float]:
        """The highest probability among each text's windows."""
        return [max(windows) for windows in self.score_windows(texts)]

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        """Per text the probabilities of its windows.

        Raises:
            ArithmeticError: If the model computes something that is not a number: no verdict follows from it.
        """
        windows = [self.tokens.windows(text, self.settings) for text in texts]
        scores = iter(self._probabilities([ids for several in windows for ids in several]))
        return [[next(scores) for _ in several] for several in windows]

    def _probabilities(self, windows: Sequence[TokenIds]) -> list[float]:
        # Windows of like length side by side, so that little of a batch is padding.
        order = sorted(range(len(windows)), key=lambda index: len(windows[index]))
        scores = [0.0] * len(windows)
        size = self.settings.batch_size
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            ids, mask = pad_batch([windows[index] for index in batch], self.tokens.padding)
            injected = 1.0 - softmax(self.network.logits(ids, mask))[:, self.safe]
            if not np.isfinite(injected).all():
                raise ArithmeticError(f"{self.name} computed a score that is not a number")
            for index, score in zip(batch, injected, strict=True):
                scores[index] = float(score)
        return scores


class CachedDetector:
    """A detector for many threads: asks one at a time and remembers the scores of texts it has seen.

    Of more than `most` texts the ones longest unused go first.
    """

    def __init__(self, detector: WindowedDetector, most: int = MOST_CACHED_TEXTS) -> None:
        self.detector = detector
        self._most = most
        self._lock = threading.Lock()
        self._scores: OrderedDict[bytes, list[float]] = OrderedDict()

    @property
    def name(self) -> str:
        """The detector's name."""
        return self.detector.name

    def score(self, texts: Sequence[str]) -> list[float]:
        """The highest probability among each text's windows."""
        return [max(windows) for windows in self.score_windows(texts)]

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        """Score each window, as the detector does or did before."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        with self._lock:
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._scores}
            if new:
                told = self.detector.score_windows(list(new.values()))
                self._scores.update(zip(new, told, strict=True))
            found = [list(self._scores[key]) for key in keys]
            for key in keys:
                self._scores.move_to_end(key)
            while len(self._scores) > self._most:
                self._scores.popitem(last=False)
        return found


def pad_batch(windows: Sequence[TokenIds], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask of a batch, each of shape `(n, longest)`."""
    shape = len(windows), max(len(ids) for ids in windows)
    ids, mask = np.full(shape, padding, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window
        mask[row, : len(window)] = 1
    return ids, mask


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Probabilities, row by row."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    result: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return result
