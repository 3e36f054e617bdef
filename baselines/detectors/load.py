"""Loads a classifier once per process, whoever asks for it first."""

from __future__ import annotations

import threading
import time
from functools import lru_cache

from agentsys.errors import ConfigError
from baselines.detectors.classifier import Classifier, Network, Remembered
from baselines.detectors.extra import NEEDED, require
from baselines.detectors.settings import ClassifierSettings
from baselines.detectors.tokens import tokens_of

_LOADING = threading.Lock()
_FAILED: dict[ClassifierSettings, tuple[float, str]] = {}
"""Settings that could not be loaded: when (monotonic seconds), and why."""
_FAILED_FOR_S = 60.0
"""How long a failure holds. Cases run side by side: without it each would try an unreachable hub in turn."""


def load_classifier(settings: ClassifierSettings) -> Remembered:
    """The detector of these settings, shared by everyone who asks for the same.

    Raises:
        ConfigError: If a package is missing, or the model cannot be had or does not fit the settings.
    """
    with _LOADING:
        when, why = _FAILED.get(settings, (float("-inf"), ""))
        if time.monotonic() - when < _FAILED_FOR_S:
            raise ConfigError(why)
        try:
            return _loaded(settings)
        except ConfigError as failure:
            _FAILED[settings] = (time.monotonic(), str(failure))
            raise


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
