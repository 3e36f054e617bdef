"""`Report`, what was measured of some folders, and its tables: a section per model and benchmark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.attack_success import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial
from agentsys.analysis.metrics.case_measures import (
    ASR_LESS_CONTROL,
    CONTROL_ASR,
    collect_declared_facts,
    is_control,
    list_unsolved_suites,
    name_metric_of_fact,
)
from agentsys.analysis.metrics.cell_verdict import BROKEN, CellVerdict, shorten_verdict
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    make_cells,
    make_difference_cell,
    make_number_cell,
)
from agentsys.analysis.tables.table_writers import Output, make_long_form
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

MOST_ACROSS = 6
"""Suites that stand side by side; with more, a table is too wide to be read."""


class ResultsLine(NamedTuple):
    """One defense under one attack (or under none, where no attack was run)."""

    defense: str
    attack: str
    numbers: dict[tuple[str, str], rates.MetricRow]
    """(metric, suite, `overall` or `pooled`) -> number; the benign utility is the defense's own."""
    kinds: list[rates.MetricRow]
    """The numbers that tell of its benign and of its attacked cases, as far as there are any."""
    errors: int
    """Errored cases of both kinds."""
    verdict: str
    """Grade and first reason of its cells' verdict; empty where there is nothing to say in the line."""

    @property
    def name(self) -> str:
        """E.g. `agentsys / important_instructions`."""
        return self.defense if self.attack == NO_ATTACK else f"{self.defense} / {self.attack}"


class Sheet(NamedTuple):
    """Lines that can be compared: those of one model on one version of a benchmark.

    The first three fields are those of its cells, in the order of `MeasuredCell`.
    """

    benchmark: str
    version: str
    model: str
    lines: list[ResultsLine]
    titles: Mapping[str, str]
    """Metric -> heading, in the order shown."""
    title: str
    """E.g. `gpt-4o on agentdojo v1.2.2`."""
    suites: list[str]
    """Every suite that some line has, sorted."""


def arrange_sheets(
    rows: Iterable[rates.MetricRow], titles: Mapping[str, str] = rates.METRIC_TITLES
) -> list[Sheet]:
    """Arrange the long form; the order of its rows is kept.

    A defense has a line per attack, each with the benign numbers; the benign ones alone where no attack was run.
    """
    found = []
    for place, of_sheet in group_by(rows, lambda row: (row.benchmark, row.version, row.model)).items():
        benchmark, version, model = place
        lines = []
        for defense, of_defense in group_by(of_sheet, lambda row: row.defense).items():
            by_attack = group_by(of_defense, lambda row: row.attack)
            benign = by_attack.pop(NO_ATTACK, [])
            for attack, some in (by_attack or {NO_ATTACK: []}).items():
                numbers = {(row.metric, row.suite): row for row in (*benign, *some)}
                told = (
                    numbers.get((metric, OVERALL)) for metric in (rates.BENIGN_UTILITY, rates.TARGETED_ASR)
                )
                kinds = [kind for kind in told if kind is not None]
                verdicts = (CellVerdict(kind.verdict, kind.reasons) for kind in kinds)
                joined = reduce(CellVerdict.join, verdicts, CellVerdict())
                errors = sum(kind.errors for kind in kinds)
                lines.append(ResultsLine(defense, attack, numbers, kinds, errors, shorten_verdict(*joined)))
        suites = sorted({row.suite for row in of_sheet} - {OVERALL, POOLED})
        found.append(Sheet(*place, lines, titles, f"{model} on {benchmark} {version}", suites))
    return found


@dataclass(frozen=True)
class Report:
    """Everything that a format shows of some folders."""

    rows: list[rates.MetricRow]
    """The long form."""
    unexposed: dict[rates.MeasuredCell, float] = field(default_factory=dict)
    """Attacked cells whose exposure is recorded -> percent of the cases without error in which no tool
    ever returned the payload: there the attack could not have worked, whatever the defense does."""
    notes: Iterable[str] = ()
    """Footnotes, one sentence or two each, as plain text with names as they were found."""
    measured: list[rates.MetricRow] = field(default_factory=list)
    """Rates of what benchmarks measure besides the two scores, in the long form; mostly empty."""
    facts: Mapping[tuple[str, str], Mapping[str, DeclaredFact]] = field(default_factory=dict)
    """Benchmark and caption of a table in which it wants them shown -> name -> fact."""
    denials: list[Denial] = field(default_factory=list)
    """Denials of service beside the same tasks without attack; mostly empty."""

    titles: Mapping[str, str] = field(default_factory=lambda: rates.METRIC_TITLES)
    """Metric -> heading, in the order shown."""
    is_brief: bool = False
    """Whether it is for a screen, which shows nothing of the rest."""


def make_results_output(found: Report, findings: Sequence[str] = ()) -> Output:
    """Make a report ready to be written in any form."""
    document = replace(make_results_document(found), quotable=findings)
    paired = [row for denial in found.denials for row in denial.rows]
    records = make_long_form(rates.MetricRow, [*found.rows, *found.measured, *paired])
    return Output("agentsys results", document, records)


Link = Callable[[Sheet, ResultsLine, str, str, str], str]
"""Where a number leads, by its line, metric (empty: errors), suite and text."""


def make_results_document(found: Report, link: Link | None = None) -> Document:
    """Arrange overall grids, what only some runs have, grids by suite, and the footnotes.

    Args:
        found: What was measured, from `agentsys.analysis.tables.results_report.build_report`.
        link: Gives numbers their links; those by suite then have intervals too, for which paper lacks room.
    """
    sections = [
        (
            sheet.title,
            (
                _make_overall_grid(sheet, found, link),
                # What only some runs have.
                *_make_grids_of_facts(found, sheet),
                *_make_denial_grids(found.denials, sheet),
                _make_grid_by_suite(sheet, link),
            ),
        )
        for sheet in arrange_sheets(found.rows, found.titles)
    ]
    return Document(sections, tuple(found.notes))


def _make_overall_grid(sheet: Sheet, found: Report, link: Link | None) -> Grid:
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
        share = None if line.verdict.startswith(BROKEN) else found.unexposed.get(cell)
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
            numbers = [make_number_cell(line.numbers.get(place)) for place in places]
            numbers = [
                one._replace(link=link(sheet, line, *place, one.text)) if link else GridCell(one.text)
                for place, one in zip(places, numbers, strict=True)
            ]
            rows.append(make_cells(line.defense, _show_attack(line), title, *numbers))
    header = ("Metric", *suites) if across else ("Suite", *sheet.titles.values())
    breaks = frozenset() if across else frozenset(range(len(suites), len(rows), len(suites)))
    caption = "by suite, in percent"
    header, headline = ("Defense", "Attack", *header), range(3, 3 + len(header))
    return Grid(caption, header, rows, names=3, headline=headline, breaks=breaks, captioned=True)


def _show_attack(line: ResultsLine) -> str:
    return "" if line.attack == NO_ATTACK else line.attack


def _make_denial_grids(found: Iterable[Denial], sheet: Sheet) -> list[Grid]:
    """One grid of paired denials of service; none where no run has them beside benign cases."""
    rows = []
    for denial in found:
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


def group_facts(cases: Iterable[CaseRow]) -> dict[tuple[str, str], dict[str, DeclaredFact]]:
    """Facts that the benchmarks of some cases declare, by benchmark and the table they want them in."""
    found: defaultdict[tuple[str, str], dict[str, DeclaredFact]] = defaultdict(dict)
    for benchmark, some in group_by(cases, lambda case: case.benchmark).items():
        for name, fact in collect_declared_facts(some).items():
            found[benchmark, fact.grid][name] = fact
    return dict(found)


def _make_grids_of_facts(found: Report, sheet: Sheet) -> Iterator[Grid]:
    """The tables of measured facts of one sheet; none where its runs hold no such facts."""
    numbers: defaultdict[tuple[str, str], dict[str, rates.MetricRow]] = defaultdict(dict)
    for row in found.measured:
        if (row.benchmark, row.version, row.model) == sheet[:3] and row.suite == OVERALL:
            numbers[row.defense, row.attack][row.metric] = row
    for (benchmark, caption), facts in found.facts.items():
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


def write_fact_notes(rows: Sequence[rates.MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Explain the grids, where the facts are there."""
    metrics = {row.metric for row in rows}
    facts = collect_declared_facts(cases)
    shown = [fact for name, fact in facts.items() if name_metric_of_fact(name, fact) in metrics]
    yield from dict.fromkeys(fact.note for fact in shown if fact.note)
    if ASR_LESS_CONTROL in metrics:
        yield "Control: the same cases with an empty payload. What succeeds there, no injection has caused."
    told = [
        f"{better} is better for {', '.join(titles)}"
        for better in ("higher", "lower")
        if (titles := list(dict.fromkeys(fact.title for fact in shown if fact.better == better)))
    ]
    if told:
        yield f"Of what was measured besides, {'; '.join(told)}."
    for sheet in dict.fromkeys((row.benchmark, row.version, row.model) for row in rows):
        mine = [c for c in cases if (c.benchmark, c.version, c.table_model) == sheet]
        suites, never = {case.suite for case in mine}, list_unsolved_suites(mine)
        if never:
            most = 100.0 * (1 - len(never) / len(suites))
            yield (
                f"{sheet[2]} on {sheet[0]} {sheet[1]}: no run solved a user task of {', '.join(never)}; "
                f"where that is the tasks' fault, utility has a ceiling of {most:.1f}."
            )
    yield from _write_notes_on_lacking_runs(rows, cases, facts)


def _write_notes_on_lacking_runs(
    rows: Iterable[rates.MetricRow], cases: Sequence[CaseRow], facts: Mapping[str, DeclaredFact]
) -> Iterator[str]:
    """Name defenses that were run without a plan only, beside others with one; and those without a control."""
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        if isinstance(mode := case.measured.get("mode"), str):
            modes[case.defense].add(mode)
    alone = sorted(defense for defense, found in modes.items() if found == {"react"})
    if alone and any(found - {"react"} for found in modes.values()):
        yield (
            f"In mode react only: {', '.join(alone)}. A defense that is a whole program of its own has no "
            "part in a planned conversation."
        )
    wanting = {name_metric_of_fact(name, fact) for name, fact in facts.items() if fact.wants_control}
    split = {(row.benchmark, row.version, row.model, row.defense) for row in rows if row.metric in wanting}
    controls = {
        (case.benchmark, case.version, case.table_model, case.defense)
        for case in (cases if split else ())
        if is_control([case])
    }
    if lacking := sorted({key[3] for key in split - controls}):
        yield f"No control (empty payload) was run for: {', '.join(lacking)}."
