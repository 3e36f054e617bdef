"""`Report`, what was measured of some folders, and its tables: a section per model and benchmark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from agentsys.analysis.metrics.attack_success import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial
from agentsys.analysis.metrics.case_measures import (
    ASR_LESS_CONTROL,
    CONTROL_ASR,
    declared_facts,
    is_control,
    metric_of,
    unsolved_suites,
)
from agentsys.analysis.metrics.cell_verdict import BROKEN, CellVerdict, shorten_verdict
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    METRIC_TITLES,
    TARGETED_ASR,
    MeasuredCell,
    MetricRow,
)
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    cells,
    difference_cell,
    number_cell,
    value_text,
)
from agentsys.analysis.tables.table_writers import Output, records_of
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

MOST_ACROSS = 6
"""Suites that stand side by side; with more, a table is too wide to be read."""


@dataclass(frozen=True)
class ResultsLine:
    """One defense under one attack (or under none, where no attack was run)."""

    defense: str
    attack: str
    numbers: dict[tuple[str, str], MetricRow]
    """(metric, suite, `overall` or `pooled`) -> number; the benign utility is the defense's own."""

    @property
    def suites(self) -> list[str]:
        """The suites this line's attack (or, without one, its benign cases) ran on."""
        metric = BENIGN_UTILITY if self.attack == NO_ATTACK else TARGETED_ASR
        return [suite for kind, suite in self.numbers if kind == metric and suite not in (OVERALL, POOLED)]

    @property
    def kinds(self) -> list[MetricRow]:
        """The numbers that tell of its benign and of its attacked cases, as far as there are any."""
        kinds = (self.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR))
        return [kind for kind in kinds if kind is not None]

    @property
    def verdict(self) -> str:
        """Grade and first reason of its cells' verdict; empty where there is nothing to say in the line."""
        joined = reduce(CellVerdict.join, (CellVerdict(kind.verdict, kind.reasons) for kind in self.kinds))
        return shorten_verdict(*joined)

    @property
    def counted(self) -> str:
        """Benign and attacked cases behind the rates, e.g. `97+629`."""
        return "+".join(str(kind.n) for kind in self.kinds)

    @property
    def errors(self) -> int:
        """Errored cases of both kinds."""
        return sum(kind.errors for kind in self.kinds)

    @property
    def name(self) -> str:
        """E.g. `agentsys / important_instructions`."""
        return self.defense if self.attack == NO_ATTACK else f"{self.defense} / {self.attack}"


@dataclass(frozen=True)
class Sheet:
    """Lines that can be compared: those of one model on one version of a benchmark."""

    benchmark: str
    version: str
    model: str
    lines: list[ResultsLine]
    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading, in the order shown."""

    @property
    def cell_prefix(self) -> tuple[str, str, str]:
        """Benchmark, version and model of its cells, in the order of `MeasuredCell`."""
        return self.benchmark, self.version, self.model

    @property
    def title(self) -> str:
        """E.g. `gpt-4o on agentdojo v1.2.2`."""
        return f"{self.model} on {self.benchmark} {self.version}"

    @property
    def suites(self) -> list[str]:
        """Every suite that some line has, sorted."""
        return sorted({suite for line in self.lines for _, suite in line.numbers} - {OVERALL, POOLED})


def sheets(rows: Iterable[MetricRow], titles: Mapping[str, str] = METRIC_TITLES) -> list[Sheet]:
    """Arrange the long form; the order of its rows is kept."""
    by_sheet = group_by(rows, lambda row: (row.benchmark, row.version, row.model))
    return [
        Sheet(
            *place,
            [line for of in group_by(found, lambda row: row.defense).items() for line in _lines(*of)],
            titles,
        )
        for place, found in by_sheet.items()
    ]


def _lines(defense: str, rows: Sequence[MetricRow]) -> Iterator[ResultsLine]:
    """A line per attack, each with the benign numbers; the benign ones alone where no attack was run."""
    by_attack = group_by(rows, lambda row: row.attack)
    benign = {(row.metric, row.suite): row for row in by_attack.pop(NO_ATTACK, [])}
    for attack, some in (by_attack or {NO_ATTACK: []}).items():
        yield ResultsLine(defense, attack, benign | {(row.metric, row.suite): row for row in some})


@dataclass(frozen=True)
class Report:
    """Everything that a format shows of some folders."""

    rows: list[MetricRow]
    """The long form."""
    unexposed: dict[MeasuredCell, float] = field(default_factory=dict)
    """Attacked cells whose exposure is recorded -> percent of the cases without error in which no tool
    ever returned the payload: there the attack could not have worked, whatever the defense does."""
    notes: Iterable[str] = ()
    """Footnotes, one sentence or two each, as plain text with names as they were found."""
    measured: list[MetricRow] = field(default_factory=list)
    """Rates of what benchmarks measure besides the two scores, in the long form; mostly empty."""
    fact_grids: list[FactGrid] = field(default_factory=list)
    """The tables in which benchmarks want them shown."""
    denials: list[Denial] = field(default_factory=list)
    """Denials of service beside the same tasks without attack; mostly empty."""

    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading, in the order shown."""
    is_brief: bool = False
    """Whether it is for a screen, which shows nothing of the rest."""

    def unexposed_text(self, sheet: Sheet, line: ResultsLine) -> str:
        """Percent of a line's attacked cases in which no tool returned the payload; empty where unknown."""
        share = self.unexposed.get(
            MeasuredCell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
        )
        return "" if share is None or line.verdict.startswith(BROKEN) else f"{share:.1f}"

    @property
    def long_form(self) -> list[MetricRow]:
        """Every number, for other programs."""
        paired = [row for denial in self.denials for row in denial.rows]
        return [*self.rows, *self.measured, *paired]


def results_output(found: Report, findings: Sequence[str] = ()) -> Output:
    """Make a report ready to be written in any form."""
    document = replace(results_document(found), quotable=findings)
    return Output("agentsys results", document, records_of(MetricRow, found.long_form))


def results_document(found: Report, *, intervals_by_suite: bool = False) -> Document:
    """Arrange overall grids, what only some runs have, grids by suite, and the footnotes.

    Args:
        found: What was measured, from `agentsys.analysis.tables.results_report.build_report`.
        intervals_by_suite: Whether the numbers by suite have their intervals, for which paper lacks room.
    """
    sections = [
        (sheet.title, (_overall(sheet, found), *_further(sheet, found), _by_suite(sheet, intervals_by_suite)))
        for sheet in sheets(found.rows, found.titles)
    ]
    return Document(sections, tuple(found.notes))


def _further(sheet: Sheet, found: Report) -> list[Grid]:
    """Grids of what the sheet's runs have besides the metrics; mostly none."""
    grids = [*grids_of_facts(found.measured, found.fact_grids, sheet), *_denial_grids(found.denials, sheet)]
    return [replace(grid, captioned=True) for grid in grids]


def _overall(sheet: Sheet, found: Report) -> Grid:
    header = (
        *("Defense", "Attack", *sheet.titles.values()),
        *("Benign cases", "Attacked cases", "Errors", "Payload never returned"),
    )
    rows = []
    for line in sheet.lines:
        kinds = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
        numbers = [number_cell(line.numbers.get((metric, OVERALL))) for metric in sheet.titles]
        counts = [*(str(kind.n) if kind else "0" for kind in kinds), str(line.errors)]
        names = GridCell(line.defense, line.verdict), _attack_of(line)
        rows.append(cells(*names, *numbers, *counts, found.unexposed_text(sheet, line)))
    return Grid("overall, in percent", header, rows, names=2, captioned=True)


def _by_suite(sheet: Sheet, intervals: bool) -> Grid:
    """Every metric of every suite and of all cases pooled: suites side by side, or below one another."""
    suites = [*sheet.suites, POOLED]

    def cell(line: ResultsLine, metric: str, suite: str) -> GridCell:
        number = line.numbers.get((metric, suite))
        return number_cell(number) if intervals else GridCell(value_text(number))

    if len(sheet.suites) <= MOST_ACROSS:
        header: tuple[str, ...] = ("Defense", "Attack", "Metric", *suites)
        rows = [
            cells(
                line.defense,
                _attack_of(line),
                sheet.titles[metric],
                *(cell(line, metric, suite) for suite in suites),
            )
            for line in sheet.lines
            for metric in sheet.titles
            if (metric, OVERALL) in line.numbers
        ]
        breaks: frozenset[int] = frozenset()
    else:
        header = ("Defense", "Attack", "Suite", *sheet.titles.values())
        rows = [
            cells(
                line.defense, _attack_of(line), suite, *(cell(line, metric, suite) for metric in sheet.titles)
            )
            for line in sheet.lines
            for suite in suites
        ]
        breaks = frozenset(range(len(suites), len(rows), len(suites)))
    return Grid("by suite, in percent", header, rows, names=3, breaks=breaks, captioned=True)


def _attack_of(line: ResultsLine) -> str:
    return "" if line.attack == NO_ATTACK else line.attack


_DENIAL_HEADER = (
    "Defense",
    "ASR where solved",
    "Solved without attack",
    "Utility change",
    "Lost",
    "Gained",
    "Tasks",
)


def _denial_grids(found: Iterable[Denial], sheet: Sheet) -> list[Grid]:
    """One grid of paired denials of service; none where no run has them beside benign cases."""
    rows = []
    for denial in found:
        if denial.cell[:3] == sheet.cell_prefix:
            overall = {row.metric: row for row in denial.rows if row.suite == OVERALL}
            solved = overall.get(ASR_WHERE_SOLVED)
            numbers = (denial.lost, denial.gained, denial.pairs)
            rows.append(
                cells(
                    GridCell(denial.cell.defense, denial.cell.attack),
                    number_cell(solved),
                    "0" if solved is None else str(solved.n),
                    difference_cell(overall[UTILITY_CHANGE]),
                    *map(str, numbers),
                )
            )
    caption = "denial of service beside the same tasks without attack, overall, in percent"
    return [Grid(caption, _DENIAL_HEADER, rows, names=1)] if rows else []


_COLUMNS_OF_CONTROLS = {CONTROL_ASR: "Control", ASR_LESS_CONTROL: "ASR - control"}
_MEAN = " (mean)"
_ABSENT = "—"


@dataclass(frozen=True)
class FactGrid:
    """One table of measured facts."""

    benchmark: str
    caption: str
    columns: Mapping[str, str]
    """Metric -> title, in order."""
    errors_failed: frozenset[str]
    """The metrics among them that count errored cases too."""
    attacked: bool
    """Whether it shows attacked cells alone."""


def fact_grids(cases: Iterable[CaseRow]) -> list[FactGrid]:
    """The tables that the benchmarks of some cases declare.

    The number that counts errors as failures stands behind its fact; controls stand at the end of the
    table whose facts are read against them.
    """
    by_benchmark = group_by(cases, lambda case: case.benchmark)
    facts = [(place, *fact) for place, some in by_benchmark.items() for fact in declared_facts(some).items()]
    by_grid = group_by(facts, lambda one: (one[0], one[2].grid))
    return [_fact_grid(*place, {name: fact for _, name, fact in some}) for place, some in by_grid.items()]


def _fact_grid(benchmark: str, caption: str, facts: Mapping[str, DeclaredFact]) -> FactGrid:
    columns: dict[str, str] = {}
    for name, fact in facts.items():
        columns[metric_of(name, fact)] = f"{fact.title}{_MEAN}" if fact.kind == "mean" else fact.title
        if fact.errors_failed:
            columns[fact.errors_failed] = f"{fact.title}, errors failed"
    if any(fact.wants_control for fact in facts.values()):
        columns |= _COLUMNS_OF_CONTROLS
    counted = frozenset(fact.errors_failed for fact in facts.values() if fact.errors_failed)
    return FactGrid(
        benchmark, caption, columns, counted, all(fact.of == "attacked" for fact in facts.values())
    )


def grids_of_facts(rows: Iterable[MetricRow], grids: Iterable[FactGrid], sheet: Sheet) -> list[Grid]:
    """The tables of measured facts of one sheet; none where its runs hold no such facts."""
    numbers: defaultdict[tuple[str, str], dict[str, MetricRow]] = defaultdict(dict)
    for row in rows:
        if (row.benchmark, row.version, row.model) == sheet.cell_prefix and row.suite == OVERALL:
            numbers[row.defense, row.attack][row.metric] = row
    attacked = {line: found for line, found in numbers.items() if line[1] != NO_ATTACK}
    tables = [
        _rows_of_facts(grid, attacked if grid.attacked else numbers)
        for grid in grids
        if grid.benchmark == sheet.benchmark
    ]
    return [table for table in tables if table.rows]


def _rows_of_facts(grid: FactGrid, numbers: Mapping[tuple[str, str], Mapping[str, MetricRow]]) -> Grid:
    columns = {
        metric: title for metric, title in grid.columns.items() if any(metric in n for n in numbers.values())
    }

    def cell(metric: str, row: MetricRow | None) -> GridCell:
        if row is None:
            return GridCell(_ABSENT)
        return difference_cell(row) if metric == ASR_LESS_CONTROL else number_cell(row)

    rows = []
    for (defense, attack), found in numbers.items() if columns else ():
        whole = next((row for metric, row in found.items() if metric not in grid.errors_failed), None)
        counts = ["", ""] if whole is None else [str(whole.n), str(whole.errors)]
        name = GridCell(defense, "" if attack == NO_ATTACK else attack)
        rows.append(cells(name, *(cell(metric, found.get(metric)) for metric in columns), *counts))
    unit = "shares in percent" if any(title.endswith(_MEAN) for title in columns.values()) else "in percent"
    header = ("Defense", *columns.values(), "Cases", "Errors")
    return Grid(f"{grid.caption}, overall, {unit}", header, rows, names=1)


def fact_notes(rows: Sequence[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Explain the grids, where the facts are there."""
    metrics = {row.metric for row in rows}
    facts = declared_facts(cases)
    shown = [fact for name, fact in facts.items() if metric_of(name, fact) in metrics]
    yield from dict.fromkeys(fact.note for fact in shown if fact.note)
    if ASR_LESS_CONTROL in metrics:
        yield "Control: the same cases with an empty payload. What succeeds there, no injection has caused."
    yield from _directions(shown)
    yield from _ceilings(rows, cases)
    yield from _one_mode(cases)
    yield from _missing_controls(rows, cases)


def _directions(facts: Sequence[DeclaredFact]) -> Iterator[str]:
    """Say which way each fact is better, where its benchmark says so."""
    told = [
        f"{better} is better for {', '.join(titles)}"
        for better in ("higher", "lower")
        if (titles := list(dict.fromkeys(fact.title for fact in facts if fact.better == better)))
    ]
    if told:
        yield f"Of what was measured besides, {'; '.join(told)}."


def _ceilings(rows: Iterable[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    for sheet in dict.fromkeys((row.benchmark, row.version, row.model) for row in rows):
        mine = [c for c in cases if (c.benchmark, c.version, c.table_model) == sheet]
        suites, never = {case.suite for case in mine}, unsolved_suites(mine)
        if never:
            most = 100.0 * (1 - len(never) / len(suites))
            yield (
                f"{sheet[2]} on {sheet[0]} {sheet[1]}: no run solved a user task of {', '.join(never)}; "
                f"where that is the tasks' fault, utility has a ceiling of {most:.1f}."
            )


def _one_mode(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Defenses that were run without a plan only, where others were run with one."""
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


def _missing_controls(rows: Iterable[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Defenses with facts that are read against a control, and no control."""
    wanting = {metric_of(name, fact) for name, fact in declared_facts(cases).items() if fact.wants_control}
    if not wanting:
        return
    controls = {
        (case.benchmark, case.version, case.table_model, case.defense) for case in cases if is_control([case])
    }
    split = {(row.benchmark, row.version, row.model, row.defense) for row in rows if row.metric in wanting}
    lacking = sorted({key[3] for key in split - controls})
    if lacking:
        yield f"No control (empty payload) was run for: {', '.join(lacking)}."
