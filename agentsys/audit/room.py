"""What the audit adds to the command line."""

from __future__ import annotations

from agentsys.rooms import CommandSource, Extension, CommandSection

ROOM = Extension(
    CommandSection(
        "Doubt a benchmark",
        30,
        {
            "audit": CommandSource(
                "agentsys.audit.command:audit",
                "Audit a benchmark: what its own flaws decide.",
                ("agentsys audit", "agentsys audit benchmark.version=v1.1 runs=results/runs"),
            ),
            "rescore": CommandSource(
                "agentsys.audit.rescoring.command:rescore_command",
                "Score recorded runs again under any version.",
                (
                    "agentsys rescore results/runs --version v1.2.2",
                    "agentsys rescore results/runs --format json --out flips.json",
                ),
            ),
        },
    )
)
