"""The optional packages that classifiers need."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from agentsys.errors import ConfigError
from baselines.detectors.settings import ClassifierSettings

INSTALL = "pip install 'agentsys[detectors]'"
NEEDED = {"torch": ("torch", "transformers"), "onnx": ("onnxruntime", "transformers")}
"""Backend -> packages."""
NEEDED_TO_EXPORT = ("torch", "onnx", "onnxscript")


def require(settings: ClassifierSettings, packages: Sequence[str]) -> None:
    """Check that optional packages are there.

    Raises:
        ConfigError: Naming those that are not, and the extra that brings them.
    """
    missing = [package for package in packages if not _importable(package)]
    if missing:
        raise ConfigError(
            f"The detector model {settings.name} needs {' and '.join(missing)}, not installed here: {INSTALL}"
        )


def _importable(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True
