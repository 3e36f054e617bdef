"""agentsys: a research harness for defenses of LLM agents against indirect prompt injection.

The names below are the public functions, and `agentsys.plugins` has the types for defenses, attacks,
benchmarks and models of one's own; everything else is private and may move. Importing this package is cheap
on purpose: each name is imported when it is first asked for, AgentDojo and the vendors' SDKs where they are
used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsys.api import (
        ComparedDefenses,
        Drawing,
        ResultTables,
        Run,
        compare,
        figure,
        load_runs,
        report,
        results,
        run,
        table,
    )

__all__ = [
    "ComparedDefenses",
    "Drawing",
    "ResultTables",
    "Run",
    "__version__",
    "compare",
    "figure",
    "load_runs",
    "report",
    "results",
    "run",
    "table",
]

__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agentsys.api"), name)
