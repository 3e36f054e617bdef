"""`results_screen`: the most important of some results on one screen, one row per defense and attack."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rich.cells import cell_len

from agentsys.analysis.metrics.measures import dollars, tokens
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    DEFENSE_QUALITY,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MeasuredCell,
)
from agentsys.analysis.published import PAPER_MODEL, printed_overall
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import BEST, MISSING, Document, Grid, GridCell, cells, interval_text
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.provenance_notes import SIMULATED_NOTE
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet, sheets
from agentsys.base.grouping import abbreviate_count, format_count, format_duration
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_facts import NO_DEFENSE

NOTES = 2
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
_WORST_CASE = "simulated"
"""The scripted agent as it is shipped: it does all that it reads. Changed options change its name."""
_PAPER = "paper"
_BESIDE_PAPER = (
    f"%, 95% intervals; {_PAPER}: what it prints for {PAPER_MODEL}. The agent is a script, no LLM: it reads, "
    "obeys and solves whenever it can, so ASR is what a defense's structure lets through."
)


def results_screen(found: Report, cases: Sequence[CaseRow], findings: Sequence[str], width: int) -> Document:
    """Arrange the findings, one grid per model and benchmark, and the notes that come first."""
    relative = relative_tokens(cases)
    grids = [(_title(sheet), _grid(sheet, relative)) for sheet in sheets(found.rows, found.titles)]
    told_already = all(grid.legend == _BESIDE_PAPER for _, grid in grids)
    notes = [note for note in found.notes if not (told_already and note == SIMULATED_NOTE)]
    return Document(
        [(title, [grid]) for title, grid in grids],
        [_folded(note, width) for note in notes[:NOTES]],
        quotable=findings[:FINDINGS],
        dense=True,
    )


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


def _grid(sheet: Sheet, relative: Mapping[MeasuredCell, float]) -> Grid:
    """One line for each defense and attack."""
    order = list(dict.fromkeys(line.attack for line in sheet.lines))
    lines = sorted(sheet.lines, key=lambda line: order.index(line.attack))
    metrics = [m for m in sheet.titles if any((m, OVERALL) in line.numbers for line in lines)]
    names = ("Attack", "Defense") if len(order) > 1 else ("Defense",)
    columns = [
        (_TITLES.get(metric, sheet.titles[metric]), [_number(line, metric, lines) for line in lines])
        for metric in metrics
    ]
    beside_paper = _beside_paper(sheet, lines, columns, metrics) if sheet.model == _WORST_CASE else []
    columns = beside_paper or columns
    tokens = [_times(relative.get(MeasuredCell(*sheet.place, line.defense, line.attack))) for line in lines]
    counts = {
        _N: [line.counted for line in lines],
        _ERRORS: [str(line.errors) for line in lines],
        _TOKENS: tokens,
    }
    columns += [(name, [GridCell(text) for text in texts]) for name, texts in counts.items()]
    rows = [
        cells(*(line.attack, line.defense)[-len(names) :], *(column[place] for _, column in columns))
        for place, line in enumerate(lines)
    ]
    ends = frozenset(i for i in range(1, len(lines)) if lines[i].attack != lines[i - 1].attack)
    header = (*names, *(title for title, _ in columns))
    legend = _BESIDE_PAPER if beside_paper else _LEGEND
    return Grid("overall", header, rows, len(names), breaks=ends, legend=legend)


_Column = tuple[str, list[GridCell]]
"""A heading, and a cell for each line."""


def _beside_paper(
    sheet: Sheet, lines: Sequence[ResultsLine], columns: Sequence[_Column], metrics: Sequence[str]
) -> list[_Column]:
    """The columns of a scripted agent, each with the paper's own behind it; empty where it prints none.

    Nothing is marked as the best, and the quality, which no table of the paper has, is left out.
    """
    printed = printed_overall(sheet.benchmark)
    found: list[_Column] = []
    for metric, (title, numbers) in zip(metrics, columns, strict=True):
        attacks = [NO_ATTACK if metric == BENIGN_UTILITY else line.attack for line in lines]
        keys = [(line.defense, attack, metric) for line, attack in zip(lines, attacks, strict=True)]
        if metric != DEFENSE_QUALITY:
            found.append((title, [cell._replace(text=cell.text.rstrip(f"{BEST} ")) for cell in numbers]))
            if printed.keys() & keys:
                texts = [f"{printed[key]:.1f}" if key in printed else "" for key in keys]
                found.append((_PAPER, [GridCell(text) for text in texts]))
    return found if any(title == _PAPER for title, _ in found) else []


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


def _times(ratio: float | None) -> str:
    return MISSING if ratio is None else f"{ratio:.1f}x"


def relative_tokens(cases: Iterable[CaseRow]) -> dict[MeasuredCell, float]:
    """Cell -> tokens of all roles, as a multiple of what no defense takes for the same cases.

    Of an attacked cell, the benign cases count as well. Cases that errored, or do not say what they took, are
    left out on both sides; a cell that shares none with no defense is absent.
    """
    taken: defaultdict[MeasuredCell, dict[tuple[object, ...], int]] = defaultdict(dict)
    for case in cases:
        if case.status == "ok" and case.tokens_by_role and case.is_scored:
            taken[MeasuredCell.of(case)][case.attack, *case.task_key] = sum(case.tokens_by_role.values())
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
    time = (
        format_duration(seconds)
        if seconds is not None
        else f"{format_duration(sum(known))} of work"
        if known
        else ""
    )
    parts = (
        format_count(len(cases), "case"),
        "tokens unknown" if math.isnan(used) else f"{abbreviate_count(used)} tokens",
        "cost unknown" if math.isnan(usd) else f"${usd:.2f}",
        time,
    )
    return ", ".join(part for part in parts if part)
