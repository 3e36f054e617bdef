"""`results_screen`: the most important of some results on one screen, one row per defense and attack."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agentsys.amounts import counted, duration, short_count
from agentsys.analysis.metrics.measures import dollars, tokens
from agentsys.analysis.metrics.rates import (
    DEFENSE_QUALITY,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
)
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import BEST, MISSING, Document, Grid, GridCell, cells, interval_text
from agentsys.analysis.tables.finding import BASELINE
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet, sheets
from agentsys.records.case_row import NO_ATTACK, CaseRow

NOTES = 3
"""Notes on the screen: the first ones, for the most important come first."""
QUALITY = "Quality"
_TOKENS = "Tokens"
_TITLES = {UTILITY_UNDER_ATTACK: "Under attack", TARGETED_ASR: "ASR", DEFENSE_QUALITY: QUALITY}
"""Metric -> heading, where a shorter one does."""

_LEGEND = (
    f"Percent with 95% intervals, {BEST} best; n benign + attacked cases; tokens as a multiple of none's."
)


def results_screen(found: Report, cases: Sequence[CaseRow], findings: Sequence[str] = ()) -> Document:
    """Arrange the finding, one grid per model and benchmark, and a few notes.

    Args:
        found: What was measured, from `agentsys.analysis.tables.report.report`.
        cases: The cases it was made of.
        findings: Lines from `agentsys.analysis.tables.finding.findings`.
    """
    relative = relative_tokens(cases)
    sections = [(_title(sheet), [_grid(sheet, relative)]) for sheet in sheets(found.rows, found.titles)]
    return Document(sections, (_LEGEND, *found.notes[:NOTES]), quotable=findings)


def _title(sheet: Sheet) -> str:
    attacks = {line.attack for line in sheet.lines} - {NO_ATTACK}
    under = f", {', '.join(attacks)}" if len(attacks) == 1 else ""
    return f"{sheet.title}{under}"


def more_line(found: Report) -> str:
    """What `--full` has besides."""
    left = len(found.notes) - NOTES
    tables = "suites and tables of what else was measured" if found.measured or found.denials else "suites"
    return f"{tables}, {counted(left, 'more note')}" if left > 0 else tables


def _grid(sheet: Sheet, relative: Mapping[MeasuredCell, float]) -> Grid:
    """All columns; for a narrow terminal without the interval of the quality, which is a product of two."""
    order = list(dict.fromkeys(line.attack for line in sheet.lines))
    lines = sorted(sheet.lines, key=lambda line: order.index(line.attack))
    metrics = [m for m in sheet.titles if any((m, OVERALL) in line.numbers for line in lines)]
    names = ("Attack", "Defense") if len(order) > 1 else ("Defense",)
    rows = [
        cells(
            *(line.attack, line.defense)[-len(names) :],
            *(_number(line, metric, lines) for metric in metrics),
            line.counted,
            str(line.errors),
            _times(relative.get(MeasuredCell(*sheet.place, line.defense, line.attack), math.nan)),
        )
        for line in lines
    ]
    titles = [_TITLES.get(metric, sheet.titles[metric]) for metric in metrics]
    header = (*names, *titles, "n", "Errors", _TOKENS)
    ends = frozenset(i for i in range(1, len(lines)) if lines[i].attack != lines[i - 1].attack)
    optional = (_TOKENS, QUALITY)
    grid = Grid("overall", header, rows, len(names), breaks=ends, beside=True, optional=optional)
    return replace(grid, in_terminal=(grid, _without_interval(grid, QUALITY)))


def _number(line: ResultsLine, metric: str, lines: Sequence[ResultsLine]) -> GridCell:
    """A value with its interval; marked if it is the best under the line's attack, and not all are alike."""
    number = line.numbers.get((metric, OVERALL))
    if number is None or math.isnan(number.value):
        return GridCell(f"{MISSING} ")
    rivals = [other.numbers.get((metric, OVERALL)) for other in lines if other.attack == line.attack]
    values = [round(one.value, 1) for one in rivals if one is not None and not math.isnan(one.value)]
    best = min(values) if metric == TARGETED_ASR else max(values)
    mark = BEST if round(number.value, 1) == best and min(values) < max(values) else " "
    return GridCell(f"{number.value:.1f}{mark}", interval_text(number, digits=0))


def _times(ratio: float) -> str:
    return MISSING if math.isnan(ratio) else f"{ratio:.1f}x"


def _without_interval(grid: Grid, name: str) -> Grid:
    place = grid.header.index(name) if name in grid.header else -1
    rows = [tuple(c._replace(detail="") if i == place else c for i, c in enumerate(row)) for row in grid.rows]
    return replace(grid, rows=rows)


def relative_tokens(cases: Iterable[CaseRow]) -> dict[MeasuredCell, float]:
    """Cell -> tokens of all roles, as a multiple of what no defense takes for the same cases.

    Of an attacked cell, the benign cases count as well. Cases that errored, or do not say what they took, are
    left out on both sides; a cell that shares none with no defense is absent.
    """
    taken: defaultdict[MeasuredCell, dict[tuple[object, ...], int]] = defaultdict(dict)
    for case in cases:
        if case.status == "ok" and case.tokens_by_role and not case.is_injection_task_alone:
            same = (case.attack, case.suite, case.user_task_id, case.injection_task_id, case.epoch)
            taken[MeasuredCell.of(case)][same] = sum(case.tokens_by_role.values())
    found = {}
    for cell in taken:
        whole = {**taken.get(cell._replace(attack=NO_ATTACK), {}), **taken[cell]}
        base = cell._replace(defense=BASELINE)
        against = {**taken.get(base._replace(attack=NO_ATTACK), {}), **taken.get(base, {})}
        shared = whole.keys() & against.keys()
        if below := sum(against[same] for same in shared):
            found[cell] = sum(whole[same] for same in shared) / below
    return found


def spent_line(cases: Sequence[CaseRow], seconds: float | None = None) -> str:
    """What some cases took, e.g. `448 cases, 5.5M tokens, $0.00, 0:00:21`.

    Args:
        cases: All of them, errored ones included: they were paid for.
        seconds: Wall time of the run; None: the cases' own times are summed.
    """
    used, usd = tokens(cases), dollars(cases)
    known = [case.duration_s for case in cases if case.duration_s is not None]
    time = duration(seconds) if seconds is not None else f"{duration(sum(known))} of work" if known else ""
    parts = (
        counted(len(cases), "case"),
        "tokens unknown" if math.isnan(used) else f"{short_count(used)} tokens",
        "cost unknown" if math.isnan(usd) else f"${usd:.2f}",
        time,
    )
    return ", ".join(part for part in parts if part)
