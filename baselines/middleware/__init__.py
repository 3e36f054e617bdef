"""Security middleware: three layers of checks without a model, as a library, a command and a defense.

The first layer (`normalization`) cleans what is read, the second (`tool_policy`, `risk_patterns`) decides
what may be called and how risky a text is, the third (`guard`) looks at what is passed on. The library:

    from baselines.middleware import Guard

`defense` puts the guard around the plain agent or around another defense. Needs `pip install
'agentsys-bench[middleware]'`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsys.extensions import Extension

if TYPE_CHECKING:
    from baselines.middleware.guard import CallDecision, Guard, GuardDenied, GuardSession, Screened

__all__ = ["CallDecision", "Guard", "GuardDenied", "GuardSession", "Screened"]


def __getattr__(name: str) -> Any:
    # Late, as the command line imports this package to know its command.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("baselines.middleware.guard"), name)


ROOM = Extension(
    configs=Path(__file__).parent / "configs",
)
