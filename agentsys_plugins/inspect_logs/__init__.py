"""Stored cases as logs of Inspect (`inspect_ai`, extra `inspect`): one log a cell, one sample a case.

What is stored is converted, never computed anew: scores, tokens and errors are those of the records. Only
this package imports `inspect_ai`, which takes seconds, and only `agentsys export` imports this package.
"""

from __future__ import annotations

from agentsys.extensions import CommandSection, CommandSource, Extension

ROOM = Extension(
    CommandSection(
        "Keep and publish",
        61,
        {
            "export": CommandSource(
                "agentsys_plugins.inspect_logs.export_command:export",
                "Write runs as logs of Inspect (inspect view), or as Parquet.",
                ("agentsys export inspect results/runs", "agentsys export parquet results/runs --out tables"),
            )
        },
    )
)
