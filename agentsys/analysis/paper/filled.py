"""`FilledTable`: a table of the paper with our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from agentsys.analysis.metrics.by_length import asr_by_round
from agentsys.analysis.metrics.rates import Number, measure, number_in
from agentsys.analysis.paper.layout import (
    ATTACK,
    ROUND_LENGTHS,
    RUN_AS,
    Band,
    PaperTable,
    Spot,
    round_spot,
)
from agentsys.analysis.paper.lines import RunLine, run_lines
from agentsys.analysis.published import PublishedNumber, printed_in
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.records.case_row import CaseRow

Numbers = Mapping[Spot, Number]
CAUSED = frozenset(f"injection_round+round={number}" for number in range(1, max(ROUND_LENGTHS) + 1))
"""Labels under which the attack of the tables runs in a chosen round: its base is not in the label, so it
is the default one, `important_instructions`."""


@dataclass(frozen=True)
class PaperCell:
    """One place of a table."""

    spot: Spot | None
    """None where there can be no number."""
    ours: Number | None
    """None where no case was run."""
    paper: float | None
    """Percent as printed; None where the paper has no such number."""


@dataclass(frozen=True)
class PaperRow:
    """One row: a model and a defense, as the paper or the runs have them."""

    model: str
    """The paper's name where it has one."""
    defense: str
    band: Band
    line: RunLine | None
    """Where our numbers come from; None where nothing was run."""
    printed: bool
    """Whether the paper's table has this row."""
    cells: tuple[PaperCell, ...]


@dataclass(frozen=True)
class FilledTable:
    """A table, row by row."""

    table: PaperTable
    rows: tuple[PaperRow, ...]
    lines: tuple[RunLine, ...] = field(repr=False)
    """The lines that are in it."""


def fill(
    table: PaperTable,
    cases: Iterable[CaseRow],
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    replicates: int = 2000,
) -> FilledTable:
    """Put our numbers into a table of the paper.

    Returns:
        The paper's rows in the paper's order, each with the runs of its model and defense (an empty one
        where there are none, several where the runs hold several snapshots or versions), and rows of runs
        that the paper does not have: simulated models, other models, for some tables other defenses.
    """
    printed = printed_in(table.source)
    targets = list(dict.fromkeys((number.model, number.defense) for number in printed))
    named = [_as_printed(case) for case in (with_caused_rounds(cases) if table.number == 1 else cases)]
    lines = [line for line in run_lines(named, table.attacks) if _belongs(line, table, targets)]
    ours = [(line, _numbers(table, line, errors, Resampler(replicates))) for line in lines]
    rows = [row for key in _keys(table, targets, lines) for row in _rows(table, key, ours, printed)]
    return FilledTable(table, tuple(rows), tuple(lines))


def with_caused_rounds(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """The cases, those of a chosen round under the attack that was written there.

    Only where the model and defense have no case of that attack itself: observed and caused rounds are
    not the same experiment and are not put into one row.
    """
    listed = list(cases)
    observed = {_pipeline(case) for case in listed if case.attack == ATTACK}
    return [
        replace(case, attack=ATTACK) if case.attack in CAUSED and _pipeline(case) not in observed else case
        for case in listed
    ]


def caused_in(shown: Iterable[CaseRow], read: Iterable[CaseRow]) -> int:
    """Count the cases shown that are of a chosen round."""
    sources = {case.source for case in read if case.attack in CAUSED}
    return sum(case.source in sources for case in shown)


def _pipeline(case: CaseRow) -> tuple[str, str, str]:
    return case.benchmark, case.table_model, case.defense


def _as_printed(case: CaseRow) -> CaseRow:
    """The case under the attack's name in the printed tables."""
    return replace(case, attack=RUN_AS[case.attack]) if case.attack in RUN_AS else case


def _belongs(line: RunLine, table: PaperTable, targets: Sequence[tuple[str, str]]) -> bool:
    known = {defense for _, defense in targets}
    return line.defense in known or table.further_defenses is None or line.defense in table.further_defenses


def _keys(
    table: PaperTable, targets: Sequence[tuple[str, str]], lines: Iterable[RunLine]
) -> list[tuple[str, str]]:
    """(model, defense) of every row, sorted as the table is: what the paper has comes first."""
    keys = dict.fromkeys([*targets, *((line.short, line.defense) for line in lines)])
    models = list(dict.fromkeys(model for model, _ in keys))
    defenses = list(dict.fromkeys(defense for _, defense in keys))

    def place(key: tuple[str, str]) -> tuple[int, int]:
        by_model, by_defense = models.index(key[0]), defenses.index(key[1])
        return (by_model, by_defense) if table.models_first else (by_defense, by_model)

    return sorted(keys, key=place)


def _rows(
    table: PaperTable,
    key: tuple[str, str],
    ours: Iterable[tuple[RunLine, Numbers]],
    printed: Iterable[PublishedNumber],
) -> Iterator[PaperRow]:
    paper = {
        Spot(number.attack, number.suite, number.metric): number.value
        for number in printed
        if (number.model, number.defense) == key
    }
    found = [pair for pair in ours if (pair[0].short, pair[0].defense) == key]
    nothing: list[tuple[RunLine | None, Numbers]] = [(None, {})]
    for line, numbers in [*found] or nothing:
        for band in table.bands:
            cells = tuple(
                PaperCell(spot, numbers.get(spot) if spot else None, paper.get(spot) if spot else None)
                for spot in band.spots
            )
            yield PaperRow(*key, band, line, bool(paper), cells)


def _numbers(table: PaperTable, line: RunLine, errors: ErrorRule, resampler: Resampler) -> Numbers:
    if table.number == 1:
        attacked = [case for case in line.cases if case.attack == ATTACK]
        by_round = asr_by_round(attacked, ROUND_LENGTHS, errors, resampler)
        return {round_spot(*pair): number for pair, number in by_round.items()}
    rows = measure(line.cases, errors, replicates=resampler.replicates)
    return {Spot(row.attack, row.suite, row.metric): number_in(row) for row in rows}
