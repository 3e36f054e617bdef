"""A filled table ready to be written, and further grids below it: fixed scores, cases with a tag."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.metrics.repaired_scores import FIXED
from agentsys.analysis.paper.commands import filling_commands
from agentsys.analysis.paper.filled import FilledTable, PaperCell, PaperRow, fill
from agentsys.analysis.paper.layout import POOLED_OVER_SUITES, Spot
from agentsys.analysis.paper.notes import FEWER_SUITES, MIXED, NO_RUNS, SIMULATED, covers_fewer_suites, notes
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Document, Grid, GridCell, cells, interval_text, value_text
from agentsys.analysis.tables.output import Output, records_of
from agentsys.analysis.tables.score_variants import Variant, Variants
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
    paper: float | None
    """Percent as printed; None where the paper has no such number."""
    value: float | None
    """Ours in percent; None where nothing was run, nan where undefined."""
    ci_low: float | None
    ci_high: float | None
    n: int
    """Cases our value rests on; 0 where nothing was run."""
    errors: int
    run_model: str | None
    """The model as the runs name it."""
    version: str | None
    """Benchmark version(s) of the runs."""
    simulated: bool


def table_records(filled: FilledTable) -> Iterator[TableRecord]:
    """List every place of a table that can hold a number."""
    for row in filled.rows:
        line = row.line
        of_runs = (line.model, line.version, line.simulated) if line else (None, None, False)
        for cell in row.cells:
            if cell.spot is not None:
                ours = cell.ours or (None, None, None, 0, 0)
                key = (filled.table.number, row.model, row.defense, *cell.spot)
                yield TableRecord(*key, cell.paper, *ours, *of_runs)


def table_output(filled: FilledTable, document: Document) -> Output:
    """Make a table ready to be written in any form."""
    return Output(f"Table {filled.table.number}", document, records_of(TableRecord, table_records(filled)))


def paper_document(
    filled: FilledTable,
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    logdir: str = "results/runs/paper",
    replicates: int = 2000,
) -> Document:
    """The table, its notes, and the commands that would fill what is empty."""
    table = filled.table
    return Document(
        [(f"Table {table.number}. {table.title}", [paper_grid(filled, "in percent")])],
        notes(filled, reading, errors, replicates),
        filling_commands(filled, logdir),
    )


def paper_grid(filled: FilledTable, caption: str) -> Grid:
    """The table itself."""
    table = filled.table
    header = ["Model", "Defense", *table.label_headers]
    for column in table.columns:
        header += [column, "paper"]
    return Grid(
        caption,
        (*header, "Cases", "Version"),
        [cells(*_names(row, filled), *_values(row), _counts(row), _version(row)) for row in filled.rows],
        names=2 + len(table.label_headers),
        breaks=_breaks(filled),
    )


def _names(row: PaperRow, filled: FilledTable) -> list[str]:
    snapshots = {line.model for line in filled.lines if line.short == row.model}
    # Two snapshots of a model would look alike under its short name.
    model = row.line.model if row.line and len(snapshots) > 1 else row.model
    return [model, row.defense, *row.band.labels]


def _values(row: PaperRow) -> list[str | GridCell]:
    shown: list[str | GridCell] = []
    for cell in row.cells:
        if cell.spot is None:
            shown += ["", ""]
        else:
            shown += [_ours(cell, row), NO_RUNS if cell.paper is None else f"{cell.paper:.2f}"]
    return shown


def _ours(cell: PaperCell, row: PaperRow) -> GridCell:
    if cell.ours is None or cell.spot is None or row.line is None:
        return GridCell(NO_RUNS)
    marks = SIMULATED if row.line.simulated else ""
    if cell.spot.suite == OVERALL and covers_fewer_suites(row.line, cell.spot.attack):
        marks += FEWER_SUITES
    return GridCell(
        value_text(cell.ours) + marks, _detail(cell.ours, with_n=cell.spot.suite == POOLED_OVER_SUITES)
    )


def _detail(number: Number, *, with_n: bool) -> str:
    interval = interval_text(number)
    return ", ".join(filter(None, (interval, f"n={number.n}"))) if with_n else interval


def _counts(row: PaperRow) -> GridCell:
    """Cases behind the row, benign and attacked ones apart, and how many errored."""
    found = [(cell.spot, cell.ours) for cell in row.cells if cell.spot and cell.ours]
    counts = [_total(numbers) for numbers in group_by(found, lambda one: one[0].attack).values()]
    errors = sum(error for _, error in counts)
    text = "+".join(str(n) for n, _ in counts) or NO_RUNS
    return GridCell(text, format_count(errors, "error") if errors else "")


def _total(numbers: list[tuple[Spot, Number]]) -> tuple[int, int]:
    """(cases, errors): the overall number's where there is one, else those of all cells together."""
    overall = [number for spot, number in numbers if spot.suite == OVERALL]
    chosen = overall[:1] or [number for _, number in numbers]
    return sum(number.n for number in chosen), sum(number.errors for number in chosen)


def _version(row: PaperRow) -> str:
    if row.line is None:
        return NO_RUNS
    return row.line.version + (MIXED if row.line.is_mixed else "")


def _breaks(filled: FilledTable) -> frozenset[int]:
    """A rule wherever the leading group (the model, or with several rows each the defense) changes."""
    if not filled.table.models_first and len(filled.table.bands) == 1:
        return frozenset()
    keys = [row.model if filled.table.models_first else (row.model, row.defense) for row in filled.rows]
    return frozenset(i for i in range(1, len(keys)) if keys[i] != keys[i - 1])


def with_variants(
    document: Document,
    filled: FilledTable,
    variants: Variants,
    errors: ErrorRule = ErrorRule.REPORT,
) -> Document:
    """The table, and below it one grid per variant, with what has to be said of them first in the notes."""
    (heading, grids), *others = document.sections
    further = [
        (
            f"{heading}: {', '.join(variant.marks)}{_under(variant, variants)}",
            [paper_grid(fill(filled.table, variant.cases, errors), "in percent")],
        )
        for variant in variants.listed
        if variant.marks
    ]
    sections = [(heading, grids), *further, *others]
    return replace(document, sections=sections, notes=[*variants.notes, *document.notes])


def _under(variant: Variant, variants: Variants) -> str:
    return f" under {', '.join(variants.fixes)}" if FIXED in variant.marks else ""
