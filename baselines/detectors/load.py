"""Loads a classifier once per process, whoever asks for it first."""

from __future__ import annotations

import threading
from functools import lru_cache

from baselines.detectors.classifier import Classifier, Network, Remembered
from baselines.detectors.extra import NEEDED, require
from baselines.detectors.settings import ClassifierSettings
from baselines.detectors.tokens import tokens_of

_LOADING = threading.Lock()


def load_classifier(settings: ClassifierSettings) -> Remembered:
    """The detector of these settings, shared by everyone who asks for the same.

    Raises:
        ConfigError: If a package is missing, or the model cannot be had or does not fit the settings.
    """
    with _LOADING:
        return _loaded(settings)


@lru_cache(maxsize=4)
def _loaded(settings: ClassifierSettings) -> Remembered:
    require(settings, NEEDED[settings.backend])
    from baselines.detectors.checkpoint import read_config, read_tokenizer, safe_index

    config = read_config(settings)
    safe = safe_index(config.id2label, settings)
    tokens = tokens_of(read_tokenizer(settings, config))
    return Remembered(Classifier(settings, tokens, _network(settings, config), safe))


def _network(settings: ClassifierSettings, config: object) -> Network:
    if settings.backend == "torch":
        from baselines.detectors.torch_backend import load_torch

        return load_torch(settings, config)
    from baselines.detectors.onnx_backend import load_onnx

    return load_onnx(settings, config)
