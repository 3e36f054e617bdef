"""What bundles add to the command line."""

from __future__ import annotations

from agentsys.rooms import CommandSource, Extension, CommandSection

ROOM = Extension(
    CommandSection(
        "Keep and publish",
        60,
        {
            "bundle": CommandSource(
                "agentsys.bundles.bundle_command:bundle",
                "Pack runs into one file for reviewers.",
                ("agentsys bundle results/runs", "agentsys bundle results/runs --out paper.zip"),
            ),
            "verify": CommandSource(
                "agentsys.bundles.verify_command:verify",
                "Run a bundle again, offline, and compare.",
                (
                    "agentsys verify paper.zip",
                    "agentsys verify paper.zip --output json",
                    "agentsys verify paper.zip --trust-code",
                ),
            ),
        },
    )
)
