"""The tables of a `ResultFrame`, ready to be written: a section per model and benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.attack_success import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial
from agentsys.analysis.metrics.case_measures import (
    ASR_LESS_CONTROL,
    CONTROL_ASR,
    name_metric_of_fact,
)
from agentsys.analysis.metrics.cell_verdict import BROKEN
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.analysis.tables.result_frame import ResultFrame, ResultsLine, Sheet
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.analysis.tables.results_screen import write_findings
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    Output,
    make_cells,
    make_difference_cell,
    make_long_form,
    make_number_cell,
)
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import pivot
from agentsys.records.case_row import NO_ATTACK

MOST_ACROSS = 6
"""Suites that stand side by side; with more, a table is too wide to be read."""


def make_results_output(frame: ResultFrame, *, for_programs: bool = False) -> Output:
    """Make the results ready to be written in any form; for programs, whose forms have no notes, without them."""
    document = Document((), ())
    if not for_programs:
        document = replace(make_results_document(frame), quotable=write_findings(frame))
    paired = [row for denial in frame.denials for row in denial.rows]
    records = make_long_form(rates.MetricRow, [*frame.rows, *frame.fact_rows, *paired])
    return Output("agentsys results", document, records)


Link = Callable[[Sheet, ResultsLine, str, str, str], str]
"""Where a number leads, by its line, metric (empty: errors), suite and text."""


def make_results_document(frame: ResultFrame, link: Link | None = None) -> Document:
    """Arrange overall grids, what only some runs have, grids by suite, and the footnotes.

    Args:
        frame: What was measured.
        link: Gives numbers their links; those by suite then have intervals too, for which paper lacks room.
    """
    sections = [
        (
            sheet.title,
            (
                _make_overall_grid(sheet, frame, link),
                # What only some runs have.
                *_make_grids_of_facts(frame, sheet),
                *_make_denial_grids(frame.denials, sheet),
                _make_grid_by_suite(sheet, link),
            ),
        )
        for sheet in frame.sheets
    ]
    return Document(sections, tuple(write_report_notes(frame)))


def _make_overall_grid(sheet: Sheet, frame: ResultFrame, link: Link | None) -> Grid:
    header = (
        *("Defense", "Attack", *sheet.titles.values()),
        *("Benign cases", "Attacked cases", "Errors", "Payload never returned"),
    )
    rows = []
    for line in sheet.lines:
        numbers = [(metric, make_number_cell(line.numbers.get((metric, OVERALL)))) for metric in sheet.titles]
        for metric, kind in ((rates.BENIGN_UTILITY,) * 2, (rates.UTILITY_UNDER_ATTACK, rates.TARGETED_ASR)):
            counted = line.numbers.get((kind, OVERALL))
            numbers.append((metric, GridCell(str(counted.n) if counted else "0")))
        numbers.append(("", GridCell(str(line.errors))))
        if link:
            numbers = [
                (metric, cell._replace(link=link(sheet, line, metric, OVERALL, cell.text)))
                for metric, cell in numbers
            ]
        cell = rates.MeasuredCell(*sheet[:3], line.defense, line.attack)
        share = None if line.verdict.startswith(BROKEN) else frame.unexposed.get(cell)
        unexposed = "" if share is None else f"{share:.1f}"
        names = GridCell(line.defense, line.verdict), _show_attack(line)
        rows.append(make_cells(*names, *(number for _, number in numbers), unexposed))
    headline = range(2, 2 + len(sheet.titles))
    return Grid("overall, in percent", header, rows, names=2, headline=headline, captioned=True)


def _make_grid_by_suite(sheet: Sheet, link: Link | None) -> Grid:
    """Every metric of every suite and of all cases pooled: suites side by side, or below one another."""
    suites, across = [*sheet.suites, POOLED], len(sheet.suites) <= MOST_ACROSS
    rows = []
    for line in sheet.lines:
        shown = {metric: title for metric, title in sheet.titles.items() if (metric, OVERALL) in line.numbers}
        for metric, title in shown.items() if across else ((suite, suite) for suite in suites):
            places = [(metric, suite) for suite in suites] if across else [(m, metric) for m in sheet.titles]
            numbers = [make_number_cell(line.numbers.get(key)) for key in places]
            numbers = [
                one._replace(link=link(sheet, line, *key, one.text)) if link else GridCell(one.text)
                for key, one in zip(places, numbers, strict=True)
            ]
            rows.append(make_cells(line.defense, _show_attack(line), title, *numbers))
    header = ("Metric", *suites) if across else ("Suite", *sheet.titles.values())
    breaks = frozenset() if across else frozenset(range(len(suites), len(rows), len(suites)))
    caption = "by suite, in percent"
    header, headline = ("Defense", "Attack", *header), range(3, 3 + len(header))
    return Grid(caption, header, rows, names=3, headline=headline, breaks=breaks, captioned=True)


def _show_attack(line: ResultsLine) -> str:
    return "" if line.attack == NO_ATTACK else line.attack


def _make_denial_grids(denials: Iterable[Denial], sheet: Sheet) -> list[Grid]:
    """One grid of paired denials of service; none where no run has them beside benign cases."""
    rows = []
    for denial in denials:
        if denial.cell[:3] == sheet[:3]:
            overall = {row.metric: row for row in denial.rows if row.suite == OVERALL}
            solved = overall.get(ASR_WHERE_SOLVED)
            rows.append(
                make_cells(
                    GridCell(denial.cell.defense, denial.cell.attack),
                    make_number_cell(solved),
                    "0" if solved is None else str(solved.n),
                    make_difference_cell(overall[UTILITY_CHANGE]),
                    *map(str, (denial.lost, denial.gained, denial.pairs)),
                )
            )
    caption = "denial of service beside the same tasks without attack, overall, in percent"
    header = (
        *("Defense", "ASR where solved", "Solved without attack", "Utility change"),
        *("Lost", "Gained", "Tasks"),
    )
    return [Grid(caption, header, rows, names=1, captioned=True)] if rows else []


_MEAN = " (mean)"


def _make_grids_of_facts(frame: ResultFrame, sheet: Sheet) -> Iterator[Grid]:
    """The tables of measured facts of one sheet; none where its runs hold no such facts."""
    mine = (
        row
        for row in frame.fact_rows
        if (row.benchmark, row.version, row.model, row.suite) == (*sheet[:3], OVERALL)
    )
    numbers = pivot(mine, attrgetter("defense", "attack"), attrgetter("metric"))
    for (benchmark, caption), facts in frame.facts.items():
        of_attacks = all(fact.of == "attacked" for fact in facts.values())
        lines = {line: of for line, of in numbers.items() if line[1] != NO_ATTACK or not of_attacks}
        if benchmark == sheet.benchmark and (grid := _make_grid_of_facts(caption, facts, lines)) is not None:
            yield grid


def _make_grid_of_facts(
    caption: str,
    facts: Mapping[str, DeclaredFact],
    lines: Mapping[tuple[str, str], Mapping[str, rates.MetricRow]],
) -> Grid | None:
    """One table of measured facts.

    The number that counts errors as failures stands behind its fact; controls stand at the end of the table
    whose facts are read against them.
    """
    titles: dict[str, str] = {}
    for name, fact in facts.items():
        titles[name_metric_of_fact(name, fact)] = (
            f"{fact.title}{_MEAN}" if fact.kind == "mean" else fact.title
        )
        if fact.errors_failed:
            titles[fact.errors_failed] = f"{fact.title}, errors failed"
    if any(fact.wants_control for fact in facts.values()):
        titles |= {CONTROL_ASR: "Control", ASR_LESS_CONTROL: "ASR - control"}
    counted = {fact.errors_failed for fact in facts.values()}
    columns = {m: title for m, title in titles.items() if any(m in of for of in lines.values())}
    rows = []
    for (defense, attack), of in lines.items():
        numbers = [
            GridCell("—") if (row := of.get(m)) is None
            else make_difference_cell(row) if m == ASR_LESS_CONTROL else make_number_cell(row)
            for m in columns
        ]  # fmt: skip
        whole = next((row for metric, row in of.items() if metric not in counted), None)
        counts = ("", "") if whole is None else (str(whole.n), str(whole.errors))
        line = GridCell(defense, "" if attack == NO_ATTACK else attack)
        rows.append(make_cells(line, *numbers, *counts))
    unit = "shares in percent" if any(title.endswith(_MEAN) for title in columns.values()) else "in percent"
    header = ("Defense", *columns.values(), "Cases", "Errors")
    shown = f"{caption}, overall, {unit}"
    return Grid(shown, header, rows, names=1, captioned=True) if rows and columns else None
