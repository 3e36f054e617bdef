"""`results_screen`: the most important of some results on one screen, one row per defense and attack."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

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
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.forecast_kinds import UNTESTED_LEGEND, UNTESTED_MARK
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet, sheets
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_name import NO_DEFENSE

NOTES = 3
"""Notes on the screen at most: the most important come first."""
FINDINGS = 3
"""Findings on the screen at most."""
NARROW = 80
"""Columns on which a note takes one line; what is longer is folded."""
MORE = "(more: --full)"
_CLAUSE = re.compile(r"[.;:](?= )| (?=\()")
"""Where a note can be folded."""
_SENTENCE = 4
"""Words that say something, at least."""
QUALITY = "Quality"
_N, _ERRORS, _TOKENS = "n", "Errors", "Tokens"
_TITLES = {UTILITY_UNDER_ATTACK: "Under attack", TARGETED_ASR: "ASR", DEFENSE_QUALITY: QUALITY}
"""Metric -> heading, where a shorter one does."""

_LEGEND = f"%, 95% intervals; n benign + attacked; {BEST} best."


def results_screen(found: Report, cases: Sequence[CaseRow], findings: Sequence[str], width: int) -> Document:
    """Arrange the findings, one grid per model and benchmark, and the notes that come first."""
    relative = relative_tokens(cases)
    sections = [
        (_title(sheet), [_grid(sheet, relative, found)]) for sheet in sheets(found.rows, found.titles)
    ]
    notes = [_folded(note, width) for note in found.notes[:NOTES]]
    return Document(sections, notes, quotable=findings[:FINDINGS], dense=True)


def _folded(note: str, width: int) -> str:
    """A note on one line: if it is longer, its first clauses, and where the rest is."""
    room = max(width, NARROW) - cell_len(MORE) - 1
    if cell_len(plain(note)) <= max(width, NARROW):
        return note
    heads = [note[: end.start()] for end in _CLAUSE.finditer(note)]
    # What is shorter than a sentence only says of what the rest is.
    told = [head for head in heads if cell_len(plain(head)) <= room and len(head.split()) >= _SENTENCE]
    return f"{told[-1]} {MORE}" if told else note


def _title(sheet: Sheet) -> str:
    attacks = {line.attack for line in sheet.lines} - {NO_ATTACK}
    under = f", {', '.join(attacks)}" if len(attacks) == 1 else ""
    return f"{sheet.title}{under}"


def _grid(sheet: Sheet, relative: Mapping[MeasuredCell, float], found: Report) -> Grid:
    """One line for each defense and attack."""
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
            *found.forecast_text(sheet, line),
        )
        for line in lines
    ]
    titles = [_TITLES.get(metric, sheet.titles[metric]) for metric in metrics]
    header = (*names, *titles, _N, _ERRORS, _TOKENS, *found.forecast_heading)
    untested = any(UNTESTED_MARK in kind for line in lines for kind in found.forecast_text(sheet, line))
    ends = frozenset(i for i in range(1, len(lines)) if lines[i].attack != lines[i - 1].attack)
    legend = f"{_LEGEND[:-1]}; {UNTESTED_LEGEND}" if untested else _LEGEND
    return Grid("overall", header, rows, len(names), breaks=ends, legend=legend)


def _number(line: ResultsLine, metric: str, lines: Sequence[ResultsLine]) -> GridCell:
    """A value with its interval; marked if it is the best under the line's attack, and not all are alike."""
    number = line.numbers.get((metric, OVERALL))
    if number is None or math.isnan(number.value):
        return GridCell(f"{MISSING} ", interval_text(number, digits=0))
    rivals = [other.numbers.get((metric, OVERALL)) for other in lines if other.attack == line.attack]
    values = [round(one.value, 1) for one in rivals if one is not None and not math.isnan(one.value)]
    best = min(values) if metric == TARGETED_ASR else max(values)
    mark = BEST if round(number.value, 1) == best and min(values) < max(values) else " "
    return GridCell(f"{number.value:.1f}{mark}", interval_text(number, digits=0))


def _times(ratio: float) -> str:
    return MISSING if math.isnan(ratio) else f"{ratio:.1f}x"


def relative_tokens(cases: Iterable[CaseRow]) -> dict[MeasuredCell, float]:
    """Cell -> tokens of all roles, as a multiple of what no defense takes for the same cases.

    Of an attacked cell, the benign cases count as well. Cases that errored, or do not say what they took, are
    left out on both sides; a cell that shares none with no defense is absent.
    """
    taken: defaultdict[MeasuredCell, dict[tuple[object, ...], int]] = defaultdict(dict)
    for case in cases:
        if case.status == "ok" and case.tokens_by_role and case.is_scored:
            taken[MeasuredCell.of(case)][case.attack, *case.place] = sum(case.tokens_by_role.values())
    found = {}
    for cell in taken:
        whole = {**taken.get(cell._replace(attack=NO_ATTACK), {}), **taken[cell]}
        base = cell._replace(defense=NO_DEFENSE)
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
