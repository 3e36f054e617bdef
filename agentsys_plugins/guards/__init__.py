"""Guards: packages of other people that judge texts or calls, measured without a model and run as defenses.

A guard is one YAML. It works in a process and an environment of its own; nothing of it is imported here.
"""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import CommandSection, CommandSource, Extension

ROOM = Extension(
    CommandSection(
        "Guard an agent",
        51,
        {
            "guards": CommandSource(
                "agentsys_plugins.guards.guards_command:app",
                "Scan a text; measure other people's guards.",
                (
                    "agentsys guards scan mail.txt",
                    "agentsys guards add injectionguard",
                    "agentsys guards score injectionguard kiwi_skin --texts mine.jsonl",
                    "agentsys guards replay catraca",
                ),
            )
        },
    ),
    configs=Path(__file__).parent / "configs",
)
