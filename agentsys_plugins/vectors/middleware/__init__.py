"""Security middleware: three layers of checks without a model, as a library, a command and a defense.

The first layer (`normalization`) cleans what is read, the second (`tool_policy`, `risk_patterns`) decides
what may be called and how risky a text is, the third (`guard`) looks at what is passed on. The library:

    from agentsys_plugins.vectors.middleware import Guard

`defense` puts the guard around the plain agent or around another defense. Needs `pip install
'agentsys-bench[middleware]'`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsys_plugins.vectors.middleware.guard import (
        CallDecision,
        Guard,
        GuardDenied,
        GuardSession,
        Screened,
    )

__all__ = ["CallDecision", "Guard", "GuardDenied", "GuardSession", "Screened"]


def __getattr__(name: str) -> Any:
    # Late, as the benchmark of this guest does without what these import.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agentsys_plugins.vectors.middleware.guard"), name)
