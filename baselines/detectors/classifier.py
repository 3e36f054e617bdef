"""`Classifier`: a detector made of a tokenizer and a network that scores overlapping windows of a text.

`ClassifierSettings` are all that a score depends on; torch and ONNX runtime are not imported here.
"""

from __future__ import annotations

import hashlib
import importlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from agentsys.base.option_checks import AtLeast1
from agentsys.errors import ConfigError, make_not_installed_error
from baselines.detectors.defense import WindowedDetector

ClassifierHead = Literal["pooled", "first_token"]
LongInput = Literal["windows", "truncate", "whole"]
ClassifierBackend = Literal["torch", "onnx"]

MOST_TOKENS_AT_ONCE = 8192
"""Most tokens of a text that is read in one pass."""


@dataclass(frozen=True)
class ClassifierSettings:
    """Everything a score depends on (and where the model runs). Equal settings share one loaded model."""

    model_id: str
    """Name on the Hugging Face hub, or a folder."""
    revision: str | None
    """Commit of the model's repository; None for a folder."""
    head: ClassifierHead
    """`pooled`: the stock head. `first_token`: a linear layer on the first token's hidden state."""
    safe_label: str
    """The model's label for texts without an injection, in any case."""
    long_input: LongInput = "windows"
    """`windows` of `max_length`, cut to `max_length`, or `whole` in one pass."""
    max_length: int = 512
    """Tokens of one pass, special ones included; of no effect on `whole`."""
    stride: int = 128
    """Tokens that neighbouring windows share."""
    batch_size: AtLeast1 = 16
    """Windows per pass."""
    device: str = "auto"
    """`auto` (a GPU if there is one), `cpu`, `cuda`, `cuda:1`, `mps`."""
    backend: ClassifierBackend = "torch"
    onnx_file: str | None = None
    """Backend `onnx`: a file of the model's repository, or one on disk (an absolute path; it is made by
    export from the checkpoint if it does not exist)."""
    local_files_only: bool = False
    """True to use only files downloaded before."""

    def __post_init__(self) -> None:
        if self.max_length < 8 or not 0 <= self.stride <= self.max_length // 2:
            raise ConfigError(
                f"detector max_length is {self.max_length} and stride {self.stride};"
                " give a max_length of 8 or more and a stride of at most half of it."
            )
        if self.backend == "onnx" and not self.onnx_file:
            raise ConfigError(
                "detector backend 'onnx' needs onnx_file: a file of the model's repository, or an"
                " absolute path that an export is written to."
            )

    @property
    def name(self) -> str:
        """Model and revision, for records."""
        return self.model_id if self.revision is None else f"{self.model_id}@{self.revision}"


EXTRA = "detectors"
PACKAGES_NEEDED = {"torch": ("torch", "transformers"), "onnx": ("onnxruntime", "transformers")}
"""Backend -> packages."""
PACKAGES_TO_EXPORT = ("torch", "onnx", "onnxscript")


def require_detector_packages(settings: ClassifierSettings, packages: Sequence[str]) -> None:
    """Import optional packages, which may be there and broken.

    Raises:
        Unavailable: Naming those that are not, and the extra that brings them.
    """
    missing = []
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            missing.append(package)
    if missing:
        raise make_not_installed_error(f"The detector model {settings.name}", missing, EXTRA)


TokenIds = list[int]


@dataclass(frozen=True)
class WindowTokenizer:
    """A tokenizer with the special tokens it puts around a text."""

    tokenizer: Any
    """A `transformers` tokenizer."""
    before: TokenIds
    """Special tokens in front of a text, e.g. `[CLS]`."""
    after: TokenIds
    """Special tokens after it, e.g. `[SEP]`."""
    padding: int
    """Id that fills up the shorter windows of a batch."""

    def cut_windows(self, text: str, settings: ClassifierSettings) -> list[TokenIds]:
        """Cut a text into passes: special tokens included, none longer than the settings say."""
        ids = encode_plain(self.tokenizer, text)
        most = MOST_TOKENS_AT_ONCE if settings.long_input == "whole" else settings.max_length
        room = most - len(self.before) - len(self.after)
        pieces = [ids[:room]]
        if settings.long_input == "windows":
            pieces = split_overlapping(ids, room, settings.stride)
        return [[*self.before, *piece, *self.after] for piece in pieces]


def wrap_tokenizer(tokenizer: Any) -> WindowTokenizer:
    """Find a tokenizer's special tokens by tokenizing a word with and without them."""
    bare, full = encode_plain(tokenizer, "a"), list(tokenizer("a", verbose=False)["input_ids"])
    start = next(i for i in range(len(full) - len(bare) + 1) if full[i : i + len(bare)] == bare)
    return WindowTokenizer(
        tokenizer, full[:start], full[start + len(bare) :], int(tokenizer.pad_token_id or 0)
    )


def encode_plain(tokenizer: Any, text: str) -> TokenIds:
    """Return all token ids of a text without special ones (`verbose` would warn of long texts)."""
    text = text.encode("utf-8", "replace").decode()  # tokenizers refuse lone surrogates
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def split_overlapping(ids: Sequence[int], size: int, overlap: int) -> list[TokenIds]:
    """Cut into windows of `size`, the last perhaps shorter, that share `overlap` with their neighbours.

    Nothing is left out; no ids give one empty window.
    """
    starts = range(0, max(len(ids) - overlap, 1), size - overlap)
    return [list(ids[start : start + size]) for start in starts]


MOST_CACHED_TEXTS = 20_000
"""Texts whose scores are kept; tool results repeat from case to case."""


class ClassifierNetwork(Protocol):
    """A model that is ready to run, on torch or on ONNX runtime."""

    def compute_logits(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[Any]:
        """Shape `(n, labels)` from token ids and attention mask of shape `(n, length)`."""


class _Scores:
    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        raise NotImplementedError

    def score(self, texts: Sequence[str]) -> list[float]:
        """Return each text's highest probability among its windows."""
        return [max(windows) for windows in self.score_windows(texts)]


@dataclass(frozen=True)
class Classifier(_Scores):
    """A detector made of a tokenizer and a network. One thread at a time; see `CachedDetector`."""

    settings: ClassifierSettings
    tokens: WindowTokenizer
    network: ClassifierNetwork
    safe: int
    """Index of the safe label among the logits."""

    @property
    def name(self) -> str:
        """Model and revision."""
        return self.settings.name

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        """Give per text the probabilities of its windows.

        Raises:
            ArithmeticError: If the model computes something that is not a number: no verdict follows from it.
        """
        windows = [self.tokens.cut_windows(text, self.settings) for text in texts]
        scores = iter(self._compute_probabilities([ids for several in windows for ids in several]))
        return [[next(scores) for _ in several] for several in windows]

    def _compute_probabilities(self, windows: Sequence[TokenIds]) -> list[float]:
        # Windows of like length side by side, so that little of a batch is padding.
        order = sorted(range(len(windows)), key=lambda index: len(windows[index]))
        scores = [0.0] * len(windows)
        size = self.settings.batch_size
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            ids, mask = pad_batch([windows[index] for index in batch], self.tokens.padding)
            injected = 1.0 - compute_softmax(self.network.compute_logits(ids, mask))[:, self.safe]
            if not np.isfinite(injected).all():
                raise ArithmeticError(f"{self.name} computed a score that is not a number")
            for index, score in zip(batch, injected, strict=True):
                scores[index] = float(score)
        return scores


class CachedDetector(_Scores):
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

    def score_windows(self, texts: Sequence[str]) -> list[list[float]]:
        """Score each window, as the detector does or did before."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
        with self._lock:
            new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._scores}
            if new:
                self._scores.update(zip(new, self.detector.score_windows(list(new.values())), strict=True))
            for key in keys:
                self._scores.move_to_end(key)
            scores = [list(self._scores[key]) for key in keys]
            while len(self._scores) > self._most:
                self._scores.popitem(last=False)
        return scores


def pad_batch(windows: Sequence[TokenIds], padding: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Fill up a batch: token ids and attention mask, each of shape `(n, longest)`."""
    shape = len(windows), max(map(len, windows))
    ids, mask = np.full(shape, padding, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window
        mask[row, : len(window)] = 1
    return ids, mask


def compute_softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities, row by row."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    result: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return result
