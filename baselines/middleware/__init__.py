"""Security middleware: three layers of checks without a model, as a library and as a defense.

`normalization` cleans what is read, `policy` decides what may be called and how risky a text is,
`contagion` looks at what is passed on. `risk` has the patterns and the score that all three use. `guard` is
the library:

    from baselines.middleware import Guard

`defense` puts the guard around the plain agent or around another defense: `guarded_runtime` stands between
the agent and its tools, `guarded_model` between inner agents and those above them. Needs `pip install
'agentsys-bench[middleware]'`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from baselines.middleware.guard import CallDecision, Guard, GuardDenied, GuardSession, Screened

__all__ = ["CallDecision", "Guard", "GuardDenied", "GuardSession", "Screened"]


def __getattr__(name: str) -> Any:
    # Late, as the command line imports this package to know its command.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("baselines.middleware.guard"), name)
