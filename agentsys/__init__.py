"""agentsys: a research harness for defenses of LLM agents against indirect prompt injection.

What lives here: the types that cross rooms (`contracts`, `errors`) and the rooms themselves
(`defense`, `models`, `benchmarks`, `attacks`, `runs`, `analysis`). Importing this package is
cheap on purpose: AgentDojo and the vendors' SDKs are imported only where they are used, and
`agentsys.load_runs` (stored runs as a data frame) is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsys.records.load import load_runs

__all__ = ["__version__", "load_runs"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "load_runs":
        from agentsys.records.load import load_runs

        return load_runs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
