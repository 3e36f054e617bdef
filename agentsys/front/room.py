"""What the served agent adds to the command line."""

from __future__ import annotations

from agentsys.rooms import CommandSource, Extension, CommandSection

ROOM = Extension(
    CommandSection(
        "Guard an agent",
        50,
        {
            "serve": CommandSource(
                "agentsys.front.command:serve_command",
                "Serve a defended agent, or the simulated model.",
                ("agentsys serve --port 8321", "agentsys serve benchmark=asb --fail-rate 0.05"),
            )
        },
    )
)
