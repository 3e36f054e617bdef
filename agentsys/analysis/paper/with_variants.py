"""A table of the paper with further grids below it: fixed scores, cases with and without a tag."""

from __future__ import annotations

from dataclasses import replace

from agentsys.analysis.metrics.repaired_scores import FIXED
from agentsys.analysis.paper.filled import FilledTable, fill
from agentsys.analysis.paper.paper_document import paper_grid
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.score_variants import Variant, Variants


def with_variants(
    document: Document,
    filled: FilledTable,
    variants: Variants,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    replicates: int = 2000,
) -> Document:
    """The table, and below it one grid per variant, with what has to be said of them first in the notes.

    Args:
        document: The table of all cases.
        filled: What it was made of.
        variants: Of the same cases; the one without marks is the table itself.
        errors: What errored cases count as.
        replicates: Of the bootstrap.
    """
    (heading, grids), *others = document.sections
    further = [
        (
            f"{heading}: {', '.join(variant.marks)}{_under(variant, variants)}",
            [paper_grid(fill(filled.table, variant.cases, errors, replicates=replicates), "in percent")],
        )
        for variant in variants.listed
        if variant.marks
    ]
    sections = [(heading, grids), *further, *others]
    return replace(document, sections=sections, notes=[*variants.notes, *document.notes])


def _under(variant: Variant, variants: Variants) -> str:
    return f" under {', '.join(variants.fixes)}" if FIXED in variant.marks else ""
