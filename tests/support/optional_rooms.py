"""The guests, and which of them need another."""

from __future__ import annotations

from parsed_sources import ROOT

GUESTS = tuple(sorted(path.parent.name for path in (ROOT / "agentsys_plugins").glob("*/__init__.py")))
NEEDS: dict[str | None, tuple[str, ...]] = {"audit": ("agentdyn",), "guards": ("vectors",)}
"""Guest -> others that it may import; docs/architecture.md has the same table."""
