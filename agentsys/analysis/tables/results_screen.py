"""The most important of some results on one screen: findings in a few lines, then a row per defense."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from rich.cells import cell_len

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.cell_verdict import (
    SUSPECT,
    SUSPECT_MARK,
    VALID,
    shorten_verdict,
    write_verdict_notes,
)
from agentsys.analysis.metrics.comparison import DifferenceRow
from agentsys.analysis.published import PAPER_MODEL, load_printed_overall
from agentsys.analysis.statistics.case_outcomes import sum_dollars, sum_tokens
from agentsys.analysis.statistics.difference_test import LEVEL
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.case_notes import SIMULATED_NOTE, write_part_notes
from agentsys.analysis.tables.result_frame import ResultFrame, ResultsLine, Sheet
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.analysis.tables.table_document import (
    BEST,
    BULLET,
    MISSING,
    PAPER,
    Document,
    Grid,
    GridCell,
    make_plain,
    write_interval,
    write_number,
    write_value,
)
from agentsys.base.grouping import abbreviate_count, format_count, format_duration, group_by, pivot
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.pipeline_names import NO_DEFENSE

MOST = 3
"""Lines of one block (a model on a benchmark under an attack); with several blocks, one of each."""
_MOST_BLOCKS = 4


_Block = tuple[str, str, str, str]
"""Benchmark, version, model and attack."""


class _Change(NamedTuple):
    """A defense's two differences from none; None where its cases tell nothing."""

    defense: str
    asr: DifferenceRow | None
    utility: DifferenceRow | None

    @property
    def order(self) -> tuple[bool, float, float, str]:
        """The lowest ASR first, then the highest benign utility; what differs from none in nothing last."""
        asr = math.inf if self.asr is None else round(self.asr.compared_value, 1)
        utility = 0.0 if self.utility is None else round(-self.utility.compared_value, 1)
        differs = any(row is not None and row.p_holm < LEVEL for row in (self.asr, self.utility))
        return not differs, asr, utility, self.defense

    @property
    def key(self) -> tuple[object, ...]:
        """Key that defenses share which stand in one line."""
        return tuple(
            row
            and (
                write_number(row.compared_value, ".1f"),
                row.n,
                row.gained == row.lost == 0,
                row.p_holm < LEVEL,
            )
            for row in (self.asr, self.utility)
        )


def write_findings(frame: ResultFrame, *, width: int | None = None) -> tuple[str, ...]:
    """Say how each defense differs from none in ASR and benign utility, those with the lowest ASR first.

    Args:
        frame: What was measured.
        width: Columns for a line: where defenses share one that is longer, some of them are only counted.

    Returns:
        A few lines; none where no defense stands beside none. p-values are Holm's, as `agentsys compare`
        has them; "not told apart" is a difference whose p is not below 0.05.
    """
    cells = frame.cells
    defenses = {cell.defense for cell in cells}
    if NO_DEFENSE not in defenses or len(defenses) < 2:
        return ()
    # All metrics of `agentsys compare`, so that p-values are corrected as there.
    shown = []
    for row in frame.differences:
        cell = rates.MeasuredCell(row.benchmark, row.version, row.model, row.defense, row.attack)
        grades = {
            row.verdict,
            *(cells.verdicts[one].verdict for one in (cell, cell._replace(defense=NO_DEFENSE))),
        }
        if grades == {VALID} and row.metric in (rates.BENIGN_UTILITY, rates.TARGETED_ASR):
            shown.append(row)
    blocks = _group_blocks(shown)
    texts = {block: list(_write_lines(changes, width)) for block, changes in blocks.items()}
    if len(texts) == 1:
        (lines,) = texts.values()
        # The last one tells of what made no difference.
        return tuple(lines if len(lines) <= MOST else [*lines[: MOST - 1], lines[-1]])
    first = [
        f"{model} on {benchmark} {version}{'' if attack == NO_ATTACK else f', {attack}'}: {lines[0]}"
        for (benchmark, version, model, attack), lines in texts.items()
    ]
    more = len(first) - _MOST_BLOCKS
    return (*first[:_MOST_BLOCKS], *([f"{more} more below."] if more > 0 else []))


def _group_blocks(rows: Sequence[DifferenceRow]) -> dict[_Block, list[_Change]]:
    """Attacked blocks with the benign utility beside; a model without attacks has a block without one."""
    table = pivot(rows, attrgetter("benchmark", "version", "model", "attack"), attrgetter("defense"))
    attacked_models = {block[:3] for block in table if block[3] != NO_ATTACK}
    blocks = {}
    for block, by_defense in table.items():
        benign = table.get((*block[:3], NO_ATTACK), {})
        attacked = {} if block[3] == NO_ATTACK else by_defense
        if attacked or block[:3] not in attacked_models:
            changes = [_Change(name, attacked.get(name), benign.get(name)) for name in by_defense]
            blocks[block] = sorted(changes, key=lambda change: change.order)
    return blocks


def _write_lines(changes: Sequence[_Change], width: int | None) -> Iterator[str]:
    """Write a line for defenses that share their differences, with as many names as there is room for."""
    for same in group_by(changes, lambda change: change.key).values():
        parts = [
            _describe("ASR", [change.asr for change in same]),
            _describe("benign utility", [change.utility for change in same]),
        ]
        rest = f": {', '.join(part for part in parts if part)}"
        names = [change.defense for change in same]
        # As many names as there is room for, at least the first, and how many more there are.
        for count in range(len(names), 0, -1):
            more = f" and {len(names) - count} more" if count < len(names) else ""
            line = f"{', '.join(names[:count])}{more}{rest}"
            if width is None or cell_len(line) <= width:
                break
        yield line


def _describe(name: str, same: Sequence[DifferenceRow | None]) -> str:
    """One difference of defenses that share it; with the largest of their p-values."""
    rows = [row for row in same if row is not None]
    if not rows:
        return ""
    first = rows[0]
    partly = max(row.only_baseline for row in rows) or max(row.only_compared for row in rows)
    shared = f" on the {first.n} cases they share" if partly else ""
    before, after = (write_number(value, ".1f") for value in (first.baseline_value, first.compared_value))
    if first.gained == first.lost == 0:
        # The value stands in the table, unless the two have not the same cases.
        return f"{name} unchanged ({after}){shared}" if shared else f"{name} unchanged"
    p = max(row.p_holm for row in rows)
    if math.isnan(p):
        return f"{name} {before} -> {after}{shared} (too few tasks to test)"
    change = f"{before} -> {after}" if first.p_holm < LEVEL else "not told apart"
    return f"{name} {change}{shared} ({'p Holm <0.001' if p < 0.001 else f'p Holm {p:.3f}'})"


NOTES, VERDICTS, FINDINGS = 2, 3, 3
"""Lines on the screen, at most: notes, the most important first; notes on what cannot be believed; findings."""
NARROW = 80
"""Columns on which a note takes one line; what is longer is folded."""
MORE = "(more: --full)"
_CLAUSE = re.compile(r"[.;:](?= )| (?=\()")
"""Where a note can be folded."""
_SENTENCE = 4
"""Words that say something, at least."""
_TITLES = {
    rates.UTILITY_UNDER_ATTACK: "Under attack",
    rates.TARGETED_ASR: "ASR",
    rates.DEFENSE_QUALITY: "Quality",
}
"""Metric -> heading, where a shorter one does."""
_LEGEND = "%, 95% intervals; n benign + attacked."
_WORST_CASE = "simulated"
"""The scripted agent as it is shipped: it does all that it reads. Changed options change its name."""
_BESIDE_PAPER = (
    f"%, 95% intervals; {PAPER}: what it prints for {PAPER_MODEL}. The agent is a script, no LLM: it reads, "
    "obeys and solves whenever it can, so ASR is what a defense's structure lets through."
)


def make_results_screen(frame: ResultFrame, width: int) -> Document:
    """Arrange the findings, one grid per model and benchmark, and the notes that come first."""
    relative = compute_relative_tokens(frame.cells)
    grids = []
    for sheet in frame.sheets:
        attacks = {line.attack for line in sheet.lines} - {NO_ATTACK}
        under = f", {attacks.pop()}" if len(attacks) == 1 else ""
        grids.append((f"{sheet.title}{under}", [_make_sheet_grid(sheet, relative)]))
    grave = list(write_verdict_notes(frame.rows, [rates.DEFENSE_QUALITY]))
    parts = list(write_part_notes(frame.cells))
    told_already = all(grid.legend.endswith(_BESIDE_PAPER) for _, (grid,) in grids)
    others = (
        note
        for note in write_report_notes(frame)
        if note not in (*grave, *parts, *([SIMULATED_NOTE] * told_already))
    )
    notes = (*grave[:VERDICTS], *parts[:VERDICTS], *islice(others, NOTES))
    findings = write_findings(frame, width=width - len(BULLET))[:FINDINGS]
    return Document(grids, [_fold_note(note, width) for note in notes], quotable=findings, dense=True)


def _fold_note(note: str, width: int) -> str:
    """A note on one line: if it is longer, its first clauses, and where the rest is."""
    room = max(width, NARROW) - cell_len(MORE) - 1
    if cell_len(make_plain(note)) <= max(width, NARROW):
        return note
    heads = [note[: end.start()] for end in _CLAUSE.finditer(note)]
    # What is shorter than a sentence only says of what the rest is.
    fitting = [
        head for head in heads if cell_len(make_plain(head)) <= room and len(head.split()) >= _SENTENCE
    ]
    return f"{fitting[-1]} {MORE}" if fitting else note


def _make_sheet_grid(sheet: Sheet, relative: Mapping[rates.MeasuredCell, float]) -> Grid:
    """Make the table of one model on one benchmark: names, metrics, cases, errors, tokens."""
    order = list(dict.fromkeys(line.attack for line in sheet.lines))
    lines = sorted(sheet.lines, key=lambda line: order.index(line.attack))
    metrics = [m for m in sheet.titles if any((m, OVERALL) in line.numbers for line in lines)]
    measured, is_beside_paper = _list_columns(sheet, lines, metrics)
    tokens = [relative.get(rates.MeasuredCell(*sheet[:3], line.defense, line.attack)) for line in lines]
    columns = [
        *([("Attack", [GridCell(line.attack) for line in lines])] if len(order) > 1 else []),
        ("Defense", [GridCell(line.defense, line.verdict) for line in lines]),
        *measured,
        ("n", [GridCell("+".join(str(kind.n) for kind in line.kinds)) for line in lines]),
        ("Errors", [GridCell(str(line.errors)) for line in lines]),
        ("Tokens", [GridCell(MISSING if ratio is None else f"{ratio:.1f}x") for ratio in tokens]),
    ]
    rows = list(zip(*(column for _, column in columns), strict=True))
    ends = frozenset(i for i in range(1, len(lines)) if lines[i].attack != lines[i - 1].attack)
    legend = _BESIDE_PAPER if is_beside_paper else _LEGEND
    for mark, meaning in ((BEST, "best"), (SUSPECT_MARK, "suspect, see below")):
        if any(cell.text.endswith(mark) for row in rows for cell in row):
            legend = f"{mark} {meaning}. {legend}"
    names = 2 if len(order) > 1 else 1
    header, headline = tuple(title for title, _ in columns), range(names, names + len(measured))
    return Grid("overall", header, rows, names, headline, breaks=ends, legend=legend)


_Column = tuple[str, list[GridCell]]
"""A heading, and a cell for each line."""


def _list_columns(
    sheet: Sheet, lines: Sequence[ResultsLine], metrics: Sequence[str]
) -> tuple[list[_Column], bool]:
    """A column per metric; of a scripted agent with the paper's own behind it, where it prints any.

    Nothing is then marked as the best, and the quality, which no table of the paper has, is left out.
    """
    printed = load_printed_overall(sheet.benchmark) if sheet.model == _WORST_CASE else {}
    keys = {
        metric: [
            (line.defense, NO_ATTACK if metric == rates.BENIGN_UTILITY else line.attack, metric)
            for line in lines
        ]
        for metric in metrics
        if metric != rates.DEFENSE_QUALITY
    }
    is_beside = any(printed.keys() & some for some in keys.values())
    columns: list[_Column] = []
    for metric in keys if is_beside else metrics:
        numbers = [_make_number_cell(line, metric, () if is_beside else lines) for line in lines]
        if is_beside and all(number.text.endswith(" ") for number in numbers):
            numbers = [number._replace(text=number.text.rstrip()) for number in numbers]
        columns.append((_TITLES.get(metric, sheet.titles[metric]), numbers))
        if is_beside and printed.keys() & keys[metric]:
            texts = [f"{printed[key]:.1f}" if key in printed else "" for key in keys[metric]]
            columns.append((PAPER, [GridCell(text) for text in texts]))
    return columns, is_beside


def _make_number_cell(line: ResultsLine, metric: str, lines: Sequence[ResultsLine]) -> GridCell:
    """A value with its interval; marked if it is the best under the line's attack, and not all are alike.

    Nothing is the best beside a row in doubt that is better, or may be: such a row has no claim, and leaves none.
    """
    number = line.numbers.get((metric, OVERALL))
    if number is None or math.isnan(number.value):
        return GridCell(f"{write_value(number)} ", write_interval(number, digits=0))
    rivals = [other.numbers.get((metric, OVERALL)) for other in lines if other.attack == line.attack]
    believed = [one for one in rivals if one is not None and one.verdict == VALID]
    values = [round(one.value, 1) for one in rivals if one is not None and not math.isnan(one.value)]
    best = min(values, default=0.0) if metric == rates.TARGETED_ASR else max(values, default=0.0)
    is_best = number in believed and round(number.value, 1) == best and min(values) < max(values)
    doubted = number.verdict == SUSPECT and shorten_verdict(number.verdict, number.reasons)
    mark = BEST if is_best else SUSPECT_MARK if doubted else " "
    return GridCell(f"{number.value:.1f}{mark}", write_interval(number, digits=0))


def compute_relative_tokens(cells: rates.ScoredCells) -> dict[rates.MeasuredCell, float]:
    """Cell -> tokens of all roles, as a multiple of what no defense takes for the same cases.

    Of an attacked cell, the benign cases count as well. Cases that errored, or do not say what they took, are
    left out on both sides; a cell that shares none with no defense is absent.
    """
    taken = {
        cell: {
            (case.attack, case.task_key): sum(case.tokens_by_role.values())
            for case in some
            if case.status == "ok" and case.tokens_by_role
        }
        for cell, some in cells.items()
    }
    ratios = {}
    for cell in taken:
        whole = {**taken.get(cell._replace(attack=NO_ATTACK), {}), **taken[cell]}
        base = cell._replace(defense=NO_DEFENSE)
        against = {**taken.get(base._replace(attack=NO_ATTACK), {}), **taken.get(base, {})}
        shared = whole.keys() & against.keys() if taken[cell] else ()
        if below := sum(against[same] for same in shared):
            ratios[cell] = sum(whole[same] for same in shared) / below
    return ratios


def write_spent_line(cases: Sequence[CaseRow], seconds: float | None = None) -> str:
    """Say what some cases took, e.g. `448 cases, 5.5M tokens, $0.00, 0:00:21`.

    Args:
        cases: All of them, errored ones included: they were paid for.
        seconds: Wall time of the run; None: the cases' own times are summed.
    """
    used, usd = sum_tokens(cases), sum_dollars(cases)
    known = [case.duration_s for case in cases if case.duration_s is not None]
    if seconds is not None:
        time = format_duration(seconds)
    else:
        time = f"{format_duration(sum(known))} of work" if known else ""
    parts = (
        format_count(len(cases), "case"),
        "tokens unknown" if math.isnan(used) else f"{abbreviate_count(used)} tokens",
        "cost unknown" if math.isnan(usd) else f"${usd:.2f}",
        time,
    )
    return ", ".join(part for part in parts if part)
