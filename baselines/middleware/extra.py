"""The optional packages of the middleware, imported where they are used."""

from __future__ import annotations

import importlib
from functools import lru_cache
from types import ModuleType

from agentsys.errors import find_missing_packages, not_installed_error

EXTRA = "middleware"
REQUIRED_PACKAGES = ("ada_url", "bs4", "confusable_homoglyphs", "html5lib", "idna", "jsonschema", "sklearn")
"""What the extra brings, by import name."""


@lru_cache(maxsize=32)
def load_optional(module: str) -> ModuleType:
    """An optional package's module.

    Raises:
        Unavailable: If it is not installed; the message names the extra.
    """
    package = module.partition(".")[0]
    if find_missing_packages([package]):
        raise not_installed_error("The middleware", [package], EXTRA)
    return importlib.import_module(module)


def require_middleware_packages() -> None:
    """Look whether every package of the extra is here; imports none.

    Raises:
        Unavailable: Naming those that are not.
    """
    gone = find_missing_packages(REQUIRED_PACKAGES)
    if gone:
        raise not_installed_error("The middleware", gone, EXTRA)
