"""What the middleware adds to the command line and to the defenses."""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import CommandSection, CommandSource, Extension

ROOM = Extension(
    CommandSection(
        "Guard an agent",
        51,
        {
            "guard": CommandSource(
                "baselines.middleware.command:guard",
                "Scan a text for attacks and explain each finding.",
                ("agentsys guard mail.txt", "agentsys guard --format json < mail.txt"),
            )
        },
    ),
    configs=Path(__file__).parent / "configs",
)
