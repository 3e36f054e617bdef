"""A table of the paper ready to be written, and further grids below it: fixed scores, cases with a tag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentsys.analysis.metrics.cell_verdict import BROKEN, verdict_notes
from agentsys.analysis.metrics.rates import Percent
from agentsys.analysis.metrics.task_tags import SCORE_FIXED
from agentsys.analysis.paper import paper_notes
from agentsys.analysis.paper.paper_tables import (
    POOLED_OVER_SUITES,
    FilledTable,
    PaperCell,
    PaperRow,
    fill_table,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.results_report import Variants
from agentsys.analysis.tables.table_document import Document, Grid, GridCell, cells, interval_text, value_text
from agentsys.analysis.tables.table_writers import Output, records_of
from agentsys.base.grouping import format_count, group_by
from agentsys.records.case_reader import LoadedCases


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One number of a table, for other programs. The fields are the columns."""

    table: int
    model: str
    """The paper's name of the model; a simulated one is marked."""
    defense: str
    attack: str
    suite: str
    """A suite, `overall`, or `all` (pooled) in Table 1."""
    metric: str
    paper: Percent | None
    """As printed; None where the paper has no such number."""
    value: Percent | None
    """Ours; None where nothing was run, nan where undefined."""
    ci_low: Percent | None
    ci_high: Percent | None
    n: int
    """Cases our value rests on; 0 where nothing was run."""
    errors: int
    verdict: str
    """`valid`, `suspect` or `broken`; where it is broken, ours is nan. Empty where nothing was run."""
    reasons: str
    run_model: str | None
    """The model as the runs name it."""
    version: str | None
    """Benchmark version(s) of the runs."""
    simulated: bool


def list_table_records(filled: FilledTable) -> Iterator[TableRecord]:
    """List every place of a table that can hold a number."""
    for row in filled.rows:
        line = row.line
        of_runs = (line.model, line.version, line.simulated) if line else (None, None, False)
        for cell in row.cells:
            if cell.spot is not None:
                ours = cell.ours or (None, None, None, 0, 0, "", "")
                key = (filled.table.number, row.model, row.defense, *cell.spot)
                yield TableRecord(*key, cell.paper, *ours, *of_runs)


def make_paper_output(filled: FilledTable, document: Document) -> Output:
    """Make a table ready to be written in any form."""
    records = records_of(TableRecord, list_table_records(filled))
    return Output(f"Table {filled.table.number}", document, records)


def make_paper_document(
    filled: FilledTable,
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    variants: Variants | None = None,
    logdir: str = "results/runs/paper",
    replicates: int = 2000,
) -> Document:
    """Make the table, its notes, and the commands that would fill what is empty in a log folder.

    Variants (fixed scores, cases with a tag) have a grid each below the table.
    """
    table = filled.table
    heading = f"Table {table.number}. {table.title}"
    sections = [(heading, [_make_grid(filled)])]
    for variant in variants.listed if variants else ():
        if variant.marks:
            under = f" under {', '.join(variants.fixes)}" if variants and SCORE_FIXED in variant.marks else ""
            grid = _make_grid(fill_table(table, variant.cases, errors))
            sections.append((f"{heading}: {', '.join(variant.marks)}{under}", [grid]))
    notes = [
        *(variants.notes if variants else ()),
        *verdict_notes(list_table_records(filled)),
        *paper_notes.write_paper_notes(filled, reading, errors, replicates),
    ]
    return Document(sections, notes, paper_notes.list_filling_commands(filled, logdir))


def _make_grid(filled: FilledTable) -> Grid:
    table = filled.table
    numbers = [title for column in table.columns for title in (column, "paper")]
    return Grid(
        "in percent",
        ("Model", "Defense", *table.label_headers, *numbers, "Cases", "Version"),
        [_make_cells(row, filled) for row in filled.rows],
        names=2 + len(table.label_headers),
        breaks=_find_breaks(filled),
    )


def _make_cells(row: PaperRow, filled: FilledTable) -> tuple[GridCell, ...]:
    line = row.line
    snapshots = {one.model for one in filled.lines if one.short == row.model}
    # Two snapshots of a model would look alike under its short name.
    model = line.model if line and len(snapshots) > 1 else row.model
    numbers = [place for cell in row.cells for place in (_write_ours(cell, row), _write_paper(cell))]
    version = line.version + (paper_notes.MIXED if line.is_mixed else "") if line else paper_notes.NO_RUNS
    return cells(
        model, GridCell(row.defense, row.verdict), *row.band.labels, *numbers, _count_cases(row), version
    )


def _write_paper(cell: PaperCell) -> str:
    if cell.spot is None:
        return ""
    return paper_notes.NO_RUNS if cell.paper is None else f"{cell.paper:.2f}"


def _write_ours(cell: PaperCell, row: PaperRow) -> GridCell:
    if cell.spot is None:
        return GridCell("")
    if cell.ours is None or row.line is None:
        return GridCell(paper_notes.NO_RUNS)
    if cell.ours.verdict == BROKEN:
        return GridCell(BROKEN)
    marks = paper_notes.SIMULATED if row.line.simulated else ""
    if cell.spot.suite == OVERALL and row.line.list_missing_suites(cell.spot.attack):
        marks += paper_notes.FEWER_SUITES
    count = f"n={cell.ours.n}" if cell.spot.suite == POOLED_OVER_SUITES else ""
    detail = ", ".join(filter(None, (interval_text(cell.ours), count)))
    return GridCell(value_text(cell.ours) + marks, detail)


def _count_cases(row: PaperRow) -> GridCell:
    """Count the cases behind the row, benign and attacked ones apart, and how many errored."""
    measured = [(cell.spot, cell.ours) for cell in row.cells if cell.spot and cell.ours]
    counts, errors = [], 0
    for numbers in group_by(measured, lambda pair: pair[0].attack).values():
        # The overall number counts all suites; where there is none, all cells do together.
        chosen = [number for spot, number in numbers if spot.suite == OVERALL][:1]
        chosen = chosen or [number for _, number in numbers]
        counts.append(sum(number.n for number in chosen))
        errors += sum(number.errors for number in chosen)
    return GridCell(
        "+".join(map(str, counts)) or paper_notes.NO_RUNS, format_count(errors, "error") if errors else ""
    )


def _find_breaks(filled: FilledTable) -> frozenset[int]:
    """Find where the leading group (the model, or with several rows each the defense) changes."""
    if not filled.table.models_first and len(filled.table.bands) == 1:
        return frozenset()
    keys = [row.model if filled.table.models_first else (row.model, row.defense) for row in filled.rows]
    return frozenset(i for i in range(1, len(keys)) if keys[i] != keys[i - 1])
