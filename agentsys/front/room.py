"""What the served agent adds to the command line."""

from __future__ import annotations

from agentsys.rooms import CommandSource, Room, Section

ROOM = Room(
    Section(
        "Guard an agent",
        50,
        {
            "serve": CommandSource(
                "agentsys.front.command:serve",
                "Serve a defended agent, or the simulated model.",
                ("agentsys serve --port 8321", "agentsys serve benchmark=asb --fail-rate 0.05"),
            )
        },
    )
)
