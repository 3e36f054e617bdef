"""A comparison ready to be written: differences overall, on exposed cases and by suite, and what flipped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentsys.analysis.metrics.compare import CaseFlip, Comparison
from agentsys.analysis.metrics.contenders import Axis
from agentsys.analysis.metrics.difference_row import ALL_CASES, EXPOSED, Contest, DifferenceRow
from agentsys.analysis.metrics.repaired_scores import changed_benchmark_notes
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.analysis.tables.document import MISSING, Document, Grid, GridCell, cells, number_text
from agentsys.analysis.tables.few_task_notes import few_task_notes
from agentsys.analysis.tables.flips import ReportPages, flip_grid, flip_groups, flip_record
from agentsys.analysis.tables.output import LongForm, Output, records_of
from agentsys.analysis.tables.provenance_notes import SIMULATED_NOTE, provenance_notes
from agentsys.analysis.tables.results_layout import MOST_ACROSS
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

_SIGNIFICANT = 0.05

_OPENED = (
    "Ids of flipped cases: behind the address of the report (agentsys report DIR) put #case=ID, or "
    "#case=ID&beside=ID for both sides; where the report is written already, the ids are links to it."
)

_CAPTIONS = {
    ALL_CASES: "overall, cases that both have, in percent",
    EXPOSED: "overall, only cases whose payload a tool returned under both, in percent",
}
_HEADINGS = {ALL_CASES: "Overall, %", EXPOSED: "Overall, % of exposed"}
"""In a terminal, where captions are not shown."""

_EXPLAINED = (
    f"{CONFIDENCE:.0f}% intervals and p: signs of user tasks and of injection tasks flipped, with a t test. "
    "p Holm is corrected for the other rows of the same table; * marks p Holm below 0.05 by suite. "
    "Overall: unweighted mean of the suites.",
    "+/-: cases in which only the compared side, or only the baseline, has the outcome (solved, or "
    "injection carried out). Detectable: the true difference that this many cases find with 80% power.",
)


def compare_output(found: Comparison, flips: int | None = 1, pages: ReportPages | None = None) -> Output:
    """Arrange tables, flipped cases and notes, ready to be written in any form.

    Args:
        found: What was measured, from `agentsys.analysis.metrics.compare.compare`.
        flips: Flipped cases to list per metric and direction, None: all; JSON has all of them.
        pages: Reports that the flipped cases are linked to.
    """
    sections = [(title, list(_grids(rows, found))) for title, rows in group_by(found.rows, _sheet).items()]
    notes, pages = list(_notes(found)), pages or ReportPages()
    if groups := flip_groups(found.flips, flips, found.titles):
        left = sum(group.total - len(group.listed) for group in groups)
        heading = f"Flipped cases; {left} more: --full" if left else "Flipped cases"
        compared = found.by.value.capitalize()
        grid = flip_grid(groups, found.baseline, compared, pages)
        sections.append((heading, [grid]))
        notes.append(_OPENED)
    records = records_of(DifferenceRow, found.rows)
    document = Document(sections, tuple(notes))
    return Output("agentsys compare", document, records, _data(found, records, pages))


def _sheet(row: DifferenceRow) -> str:
    model = "" if row.by in (Axis.MODEL, Axis.RUN) else f"{row.model} on "
    return f"{model}{row.benchmark} {row.version}, against {row.baseline}"


def _grids(rows: Sequence[DifferenceRow], found: Comparison) -> Iterator[Grid]:
    for which in _CAPTIONS:
        chosen = [row for row in rows if row.cases == which and row.suite == OVERALL]
        if chosen:
            yield _overall(chosen, which, found)
    yield _by_suite([row for row in rows if row.cases == ALL_CASES and row.suite != OVERALL], found.titles)


def _overall(rows: Sequence[DifferenceRow], which: str, found: Comparison) -> Grid:
    header = (
        _HEADINGS[which],
        "Metric",
        found.baseline,
        found.by.value.capitalize(),
        "Difference",
        "p",
        "p Holm",
        "Cases",
        "+/-",
        "Detectable",
    )
    lines = [
        cells(
            _name(row),
            found.titles[row.metric],
            number_text(row.baseline_value),
            number_text(row.compared_value),
            _difference(row),
            p_text(row.p),
            p_text(row.p_holm),
            str(row.n),
            f"+{row.gained}/-{row.lost}",
            number_text(row.smallest_detectable, ".1f"),
        )
        for row in rows
    ]
    return Grid(_CAPTIONS[which], header, lines, names=2)


def _by_suite(rows: Sequence[DifferenceRow], titles: Mapping[str, str]) -> Grid:
    suites = [*sorted({row.suite for row in rows} - {POOLED}), POOLED]
    if len(suites) > MOST_ACROSS + 1:
        return _suites_down(rows, suites, titles)
    lines: dict[tuple[str, ...], dict[str, DifferenceRow]] = {}
    for row in rows:
        lines.setdefault((*_contest_of(row), row.metric), {})[row.suite] = row
    body = []
    for by_suite in lines.values():
        first = next(iter(by_suite.values()))
        numbers = [
            _difference(by_suite[suite], starred=True) if suite in by_suite else "" for suite in suites
        ]
        body.append(cells(_name(first), titles[first.metric], *numbers))
    return Grid(
        "differences by suite, in percentage points", ("By suite, points", "Metric", *suites), body, names=2
    )


def _suites_down(rows: Sequence[DifferenceRow], suites: Sequence[str], titles: Mapping[str, str]) -> Grid:
    """A row per contest and suite, a column per metric."""
    metrics = [metric for metric in titles if any(row.metric == metric for row in rows)]
    contests: dict[tuple[str, ...], dict[tuple[str, str], DifferenceRow]] = {}
    for row in rows:
        contests.setdefault(_contest_of(row), {})[row.suite, row.metric] = row
    body = []
    for found in contests.values():
        name = _name(next(iter(found.values())))
        for suite in suites:
            differences = [found.get((suite, metric)) for metric in metrics]
            body.append(cells(name, suite, *(_difference(d, starred=True) if d else "" for d in differences)))
    header = ("By suite, points", "Suite", *(titles[metric] for metric in metrics))
    breaks = frozenset(range(len(suites), len(body), len(suites)))
    return Grid("differences by suite, in percentage points", header, body, names=2, breaks=breaks)


def _contest_of(row: DifferenceRow) -> tuple[str, ...]:
    return row.attack, row.defense, row.model, row.compared


def _name(row: DifferenceRow) -> GridCell:
    """The compared side, and below it where it was compared, as far as the heading does not say it."""
    around = {
        Axis.DEFENSE: (row.attack,),
        Axis.MODEL: (row.defense, row.attack),
        Axis.ATTACK: (row.defense,),
        Axis.RUN: (row.model, row.defense, row.attack),
    }[Axis(row.by)]
    benign = row.attack == NO_ATTACK and row.by != Axis.ATTACK
    return GridCell(row.compared, " / ".join(around[:-1] if benign else around))


def _difference(row: DifferenceRow, *, starred: bool = False) -> GridCell:
    if math.isnan(row.difference):
        return GridCell(MISSING)
    star = "*" if starred and row.p_holm < _SIGNIFICANT else ""
    interval = "" if math.isnan(row.ci_low) else f"{row.ci_low:+.1f} to {row.ci_high:+.1f}"
    return GridCell(f"{row.difference:+.2f}{star}", interval)


def p_text(p: float) -> str:
    """A p-value to be read: four decimals, or that it is smaller."""
    return "<0.0001" if p < 0.0001 else number_text(p, ".4f")


def _notes(found: Comparison) -> Iterator[str]:
    yield from found.notes
    yield from changed_benchmark_notes(row.benchmark for row in found.rows)
    yield from _EXPLAINED
    if any(case.simulated for case in _compared(found)):
        yield SIMULATED_NOTE
    yield from provenance_notes(_compared(found))
    yield from few_task_notes(found)
    yield from count_notes(found)


def _compared(found: Comparison) -> list[CaseRow]:
    pairs = [pair for pairing in found.pairings.values() for pair in pairing.pairs]
    return [case for pair in pairs for case in (pair.baseline, pair.defense)]


def count_notes(found: Comparison) -> Iterator[str]:
    """One line per contest in which not every case was compared, and per field without a contest."""
    for contest, pairing in found.pairings.items():
        parts = (
            (pairing.only_baseline, f"only under {contest.baseline}"),
            (pairing.only_defense, f"only under {contest.compared}"),
            (pairing.errored - pairing.no_text, "errored on one side"),
            (pairing.no_text, "without a text, for an attacker gave none to try"),
        )
        if any(count for count, _ in parts):
            listed = ", ".join(f"{count} {reason}" for count, reason in parts if count)
            yield f"{contest.title}: {len(pairing.pairs)} cases compared; left out: {listed}."
        unknown = sum(None in (pair.baseline.exposed_raw, pair.defense.exposed_raw) for pair in pairing.pairs)
        if unknown and contest.field.attack != NO_ATTACK:
            yield f"{contest.title}: exposure unknown for {unknown} cases, which are not among the exposed."
    for field, count in found.unopposed.items():
        cases = "1 case" if count == 1 else f"{count} cases"
        yield f"{field.place}: {cases} under {found.baseline} alone, nothing to compare them with."


def _data(found: Comparison, records: LongForm, pages: ReportPages) -> dict[str, Any]:
    """Collect what JSON holds: the differences, every flip and the counts."""
    return {
        "by": found.by.value,
        "baseline": found.baseline,
        "differences": records.rows,
        "flips": [_flip(flip, pages) for flip in found.flips],
        "pairings": [
            {
                **_contest(contest),
                "compared": len(pairing.pairs),
                "errored": pairing.errored,
                "only_baseline": pairing.only_baseline,
                "only_compared": pairing.only_defense,
            }
            for contest, pairing in found.pairings.items()
        ],
        "unopposed": [{**field._asdict(), "cases": count} for field, count in found.unopposed.items()],
    }


def _flip(flip: CaseFlip, pages: ReportPages) -> dict[str, Any]:
    links = pages.links(flip)
    return flip_record(flip) | {"baseline_link": links[0] or None, "compared_link": links[1] or None}


def _contest(contest: Contest) -> dict[str, str]:
    return contest.field._asdict() | {"baseline": contest.baseline, "compared": contest.compared}
