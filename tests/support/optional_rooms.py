"""The optional rooms: what each consists of. Without it, all that the others do works."""

from __future__ import annotations

ROOMS: dict[str, tuple[str, ...]] = {
    "audit": ("agentsys.audit",),
    "bundles": ("agentsys.bundles",),
    "serve_agent": ("agentsys.serve_agent", "agentsys.models.serving"),
    "inspect_logs": ("agentsys.inspect_logs",),
    "guards": ("agentsys.guards",),
    "middleware": ("baselines.middleware",),
    "red_team": ("agentsys.attacks.red_team",),
}
"""Name of the room's entry point -> its folders and modules."""
NEEDS: dict[str | None, str] = {"audit": "red_team"}
"""Room -> another that one of its options does not work without; it says so then."""
