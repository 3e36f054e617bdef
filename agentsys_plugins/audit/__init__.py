"""Audit: what a benchmark's own data and checkers do to its numbers, found without a model.

`static` audits a benchmark by itself, `rescoring` executes recorded runs again; the trace audit beside them
says what stored runs show. Nothing here repairs anything, and only the command line imports this package.
"""

from __future__ import annotations

from agentsys.extensions import CommandSection, CommandSource, Extension

ROOM = Extension(
    CommandSection(
        "Doubt a benchmark",
        30,
        {
            "audit": CommandSource(
                "agentsys_plugins.audit.audit_command:audit",
                "Audit a benchmark: what its own flaws decide.",
                ("agentsys audit", "agentsys audit benchmark.version=v1.1 runs=results/runs"),
            ),
            "rescore": CommandSource(
                "agentsys_plugins.audit.audit_command:rescore_command",
                "Score recorded runs again under any version.",
                (
                    "agentsys rescore results/runs --version v1.2.2",
                    "agentsys rescore results/runs --format json --out flips.json",
                ),
            ),
        },
    ),
    check="agentsys_plugins.audit.rescoring.rescoring_document:check_scores",
)
