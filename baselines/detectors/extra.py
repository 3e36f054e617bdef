"""The optional packages that classifiers need."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from agentsys.errors import not_installed_error
from baselines.detectors.settings import ClassifierSettings

EXTRA = "detectors"
PACKAGES_NEEDED = {"torch": ("torch", "transformers"), "onnx": ("onnxruntime", "transformers")}
"""Backend -> packages."""
PACKAGES_TO_EXPORT = ("torch", "onnx", "onnxscript")


def require_detector_packages(settings: ClassifierSettings, packages: Sequence[str]) -> None:
    """Check that optional packages are there.

    Raises:
        Unavailable: Naming those that are not, and the extra that brings them.
    """
    missing = [package for package in packages if not _can_import(package)]
    if missing:
        raise not_installed_error(f"The detector model {settings.name}", missing, EXTRA)


def _can_import(package: str) -> bool:
    try:
        importlib.import_module(package)
    except ImportError:
        return False
    return True
