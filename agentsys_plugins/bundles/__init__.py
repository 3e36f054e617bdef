"""Bundles: the records of a log folder, and everything needed to reproduce them, in one file.

`pack_bundle` reads a log folder, `bundle_archive` reads and writes the file, which a stranger may have made,
`rerun_bundle` runs its cases from its own replies, and `verify_bundle` compares the records. No model is ever asked.
"""

from __future__ import annotations

from agentsys.extensions import CommandSection, CommandSource, Extension

ROOM = Extension(
    CommandSection(
        "Keep and publish",
        60,
        {
            "bundle": CommandSource(
                "agentsys_plugins.bundles.bundle_command:bundle",
                "Pack runs into one file for reviewers.",
                ("agentsys bundle results/runs", "agentsys bundle results/runs --out paper.zip"),
            ),
        },
    ),
    check="agentsys_plugins.bundles.check_bundle:check_bundle",
)
