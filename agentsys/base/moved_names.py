"""Old import paths of public names: a module whose names moved forwards each, with one warning."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any


def forward_names(old: str, new: str) -> Callable[[str], Any]:
    """Build a module's `__getattr__` that finds the names of module `old` in module `new`.

    Raises (by the built function):
        AttributeError: If `new` has no such name either.
        ModuleNotFoundError: If `new` is not installed.
    """

    def find_moved(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(new), name)
        warnings.warn(f"{old} has moved; import {name} from {new}", FutureWarning, stacklevel=2)
        return value

    return find_moved
