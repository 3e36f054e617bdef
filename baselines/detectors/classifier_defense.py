"""`ClassifierDefense`: a published injection classifier as a defense (`protectai`, `piguard`)."""

from __future__ import annotations

import threading
import time
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, find_missing_packages, make_not_installed_error
from baselines.detectors import classifier
from baselines.detectors.defense import DetectorDefense

_LOADING_LOCK = threading.Lock()
_RECENT_FAILURES: dict[classifier.ClassifierSettings, tuple[float, str]] = {}
"""Settings that could not be loaded: when (monotonic seconds), and why."""
_FAILURE_KEPT_S = 60.0
"""Seconds for which a failure is cached; else each concurrent case would try an unreachable hub in turn."""


class ClassifierDefense(DetectorDefense):
    """The plain agent with a text classifier between tools and model.

    Needs `pip install 'agentsys-bench[detectors]'`; the model is loaded when the first case is built.

    Args:
        model_id: The model, see `ClassifierSettings`, as for all that follow up to `local_files_only`.
        threshold: The threshold, see `DetectorDefense`, as for all that follow.
    """

    def __init__(self, name: str, **options: Any) -> None:
        names = {field.name for field in fields(classifier.ClassifierSettings)} & options.keys()
        self.settings = check_options(
            classifier.ClassifierSettings, "detector", {key: options.pop(key) for key in names}
        )
        super().__init__(name, partial(load_classifier, self.settings), **options)

    def ready(self) -> None:
        """Check that the extra is installed; the model itself is loaded with the first case.

        Raises:
            Unavailable: If it is not.
        """
        if absent := find_missing_packages(classifier.PACKAGES_NEEDED[self.settings.backend]):
            raise make_not_installed_error(
                f"The detector model {self.settings.name}", absent, classifier.EXTRA
            )

    @property
    def detector_description(self) -> str:
        """Name the classifier, and say how it reads long texts."""
        pieces = {
            "windows": f"overlapping pieces of {self.settings.max_length} tokens, of which the worst counts",
            "truncate": f"the first {self.settings.max_length} tokens only",
            "whole": "in one pass",
        }[self.settings.long_input]
        return f"the text classifier {self.settings.model_id} (a long text: {pieces})"


def load_classifier(settings: classifier.ClassifierSettings) -> classifier.CachedDetector:
    """Load the detector of these settings once per process, for everyone who asks for the same.

    Raises:
        ConfigError: If a package is missing, or the model cannot be had or does not fit the settings.
    """
    with _LOADING_LOCK:
        when, why = _RECENT_FAILURES.get(settings, (float("-inf"), ""))
        if time.monotonic() - when < _FAILURE_KEPT_S:
            raise ConfigError(why)
        try:
            return _load_cached(settings)
        except ConfigError as failure:
            _RECENT_FAILURES[settings] = (time.monotonic(), str(failure))
            raise


@lru_cache(maxsize=4)
def _load_cached(settings: classifier.ClassifierSettings) -> classifier.CachedDetector:
    classifier.require_detector_packages(settings, classifier.PACKAGES_NEEDED[settings.backend])
    from baselines.detectors.torch_backend import find_safe_index, load_torch, read_config, read_tokenizer

    config = read_config(settings)
    safe = find_safe_index(config.id2label, settings)
    tokens = classifier.wrap_tokenizer(read_tokenizer(settings, config))
    network: classifier.ClassifierNetwork
    if settings.backend == "torch":
        network = load_torch(settings, config)
    else:
        from baselines.detectors.onnx_backend import load_onnx

        network = load_onnx(settings, config)
    return classifier.CachedDetector(classifier.Classifier(settings, tokens, network, safe))
