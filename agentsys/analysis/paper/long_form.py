"""A filled table for other programs: one record per number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from agentsys.analysis.paper.filled import FilledTable, PaperCell, PaperRow


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One number of a table. The fields are the columns."""

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


COLUMNS = tuple(column.name for column in fields(TableRecord))
"""Column names, in order."""


def table_records(filled: FilledTable) -> list[TableRecord]:
    """List every place of a table that can hold a number."""
    return [record for row in filled.rows for record in _records(filled.table.number, row)]


def _records(table: int, row: PaperRow) -> Iterator[TableRecord]:
    for cell in row.cells:
        if cell.spot is not None:
            yield _record(table, row, cell)


def _record(table: int, row: PaperRow, cell: PaperCell) -> TableRecord:
    assert cell.spot is not None  # the caller's condition
    ours, line = cell.ours, row.line
    return TableRecord(
        table,
        row.model,
        row.defense,
        *cell.spot,
        paper=cell.paper,
        value=ours.value if ours else None,
        ci_low=ours.ci_low if ours else None,
        ci_high=ours.ci_high if ours else None,
        n=ours.n if ours else 0,
        errors=ours.errors if ours else 0,
        run_model=line.model if line else None,
        version=line.version if line else None,
        simulated=line.simulated if line else False,
    )
