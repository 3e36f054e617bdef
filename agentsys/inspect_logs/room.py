"""What the logs of Inspect add to the command line."""

from __future__ import annotations

from agentsys.rooms import CommandSource, Extension, CommandSection

ROOM = Extension(
    CommandSection(
        "Keep and publish",
        61,
        {
            "export": CommandSource(
                "agentsys.inspect_logs.command:export",
                "Write runs as logs of Inspect (inspect view).",
                ("agentsys export inspect results/runs", "agentsys export inspect results/runs --out logs"),
            )
        },
    )
)
