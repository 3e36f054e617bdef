"""A comparison ready to be written: differences overall, on exposed cases and by suite, and what flipped."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from agentsys.analysis.metrics.cell_verdict import (
    BROKEN,
    SUSPECT,
    SUSPECT_MARK,
    VALID,
    shorten_verdict,
    write_verdict_notes,
)
from agentsys.analysis.metrics.compared_sides import Axis
from agentsys.analysis.metrics.comparison import (
    ALL_CASES,
    EXPOSED,
    CaseFlip,
    Comparison,
    Contest,
    DifferenceRow,
    get_injection_task,
)
from agentsys.analysis.metrics.rates import TARGETED_ASR, MeasuredCell
from agentsys.analysis.statistics.difference_test import LEVEL
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.analysis.tables.case_notes import (
    SIMULATED_NOTE,
    write_benchmark_change_notes,
    write_provenance_notes,
)
from agentsys.analysis.tables.results_document import MOST_ACROSS
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    GridCell,
    LongForm,
    Output,
    make_cells,
    make_long_form,
    write_number,
)
from agentsys.base.grouping import format_count, group_by, join_names
from agentsys.records.case_row import NO_ATTACK, make_case_id

_SIGNIFICANT = 0.05
_OPENED = (
    "Ids of flipped cases: behind the address of the report (agentsys report DIR) put #case=ID, or "
    "#case=ID&beside=ID for both sides."
)
_CAPTIONS = {
    ALL_CASES: "overall, cases that both have, in percent",
    EXPOSED: "overall, only cases whose payload a tool returned under both, in percent",
}
_HEADINGS = {ALL_CASES: "Overall, %", EXPOSED: "Overall, % of exposed"}
"""In a terminal, where captions are not shown."""
_EXPLAINED = (
    f"{CONFIDENCE:.0f}% intervals and p: signs of user tasks and of injection tasks flipped, with a t test. "
    f"p Holm is corrected for the other rows of the same table; {SUSPECT_MARK} marks suspect rows, * p Holm "
    "below 0.05 by suite. "
    "Overall: unweighted mean of the suites.",
    "+/-: cases in which only the compared side, or only the baseline, has the outcome (solved, or "
    "injection carried out). Detectable: the true difference that this many cases find with 80% power.",
)


def compare_output(comparison: Comparison, flips: int | None) -> Output:
    """Arrange tables, flipped cases and notes, ready to be written in any form.

    Args:
        comparison: What was measured, from `agentsys.analysis.metrics.comparison.compare_sides`.
        flips: Flipped cases to list per metric and direction, None: all; JSON has all of them.
    """
    sections = [
        (title, list(_make_grids(rows, comparison)))
        for title, rows in group_by(comparison.rows, _name_sheet_of).items()
    ]
    notes = list(_write_notes(comparison))
    if comparison.flips and flips != 0:
        groups = group_by(
            comparison.flips, lambda flip: (flip.contest, comparison.titles[flip.metric], flip.gained)
        )
        left = sum(max(len(group) - flips, 0) for group in groups.values()) if flips is not None else 0
        heading = f"Flipped cases; {left} more: --full" if left else "Flipped cases"
        sections.append((heading, [_make_flip_grid(groups, flips, comparison)]))
        notes.append(_OPENED)
    records = make_long_form(DifferenceRow, comparison.rows)
    return Output(
        "agentsys compare", Document(sections, tuple(notes)), records, _collect_data(comparison, records)
    )


def _name_sheet_of(row: DifferenceRow) -> str:
    model = "" if row.by in (Axis.MODEL, Axis.RUN) else f"{row.model} on "
    return f"{model}{row.benchmark} {row.version}, against {row.baseline}"


def _make_grids(rows: Sequence[DifferenceRow], comparison: Comparison) -> Iterator[Grid]:
    for which in _CAPTIONS:
        chosen = [row for row in rows if row.cases == which and row.suite == OVERALL]
        if chosen:
            yield _make_overall_grid(chosen, which, comparison)
    yield _make_grid_by_suite(
        [row for row in rows if row.cases == ALL_CASES and row.suite != OVERALL], comparison.titles
    )


def _make_overall_grid(rows: Sequence[DifferenceRow], which: str, comparison: Comparison) -> Grid:
    header = (
        *(_HEADINGS[which], "Metric", comparison.baseline, comparison.by.value.capitalize()),
        *("Difference", "p", "p Holm", "Cases", "+/-", "Detectable"),
    )
    lines = [
        make_cells(
            _write_name(row),
            comparison.titles[row.metric],
            *(_write_value(row, value) for value in (row.baseline_value, row.compared_value)),
            _write_difference(row),
            write_p(row.p),
            write_p(row.p_holm),
            str(row.n),
            f"+{row.gained}/-{row.lost}",
            write_number(row.smallest_detectable, ".1f"),
        )
        for row in rows
    ]
    # Both values, the difference and both p.
    return Grid(_CAPTIONS[which], header, lines, names=2, headline=range(2, 7))


def _make_grid_by_suite(rows: Sequence[DifferenceRow], titles: Mapping[str, str]) -> Grid:
    """Suites side by side, a row per contest and metric; of many suites a row each, a column per metric."""
    suites = [*sorted({row.suite for row in rows} - {POOLED}), POOLED]
    across = len(suites) <= MOST_ACROSS + 1
    metrics = {m: title for m, title in titles.items() if any(row.metric == m for row in rows)}
    body = []
    for of_contest in group_by(
        rows, lambda row: (row.attack, row.defense, row.model, row.compared, row.metric if across else "")
    ).values():
        cells = {(row.suite, row.metric): _write_difference(row, starred=True) for row in of_contest}
        first = of_contest[0]
        if across:
            numbers = (cells.get((suite, first.metric), GridCell("")) for suite in suites)
            body.append(make_cells(_write_name(first), titles[first.metric], *numbers))
            continue
        for suite in suites:
            body.append(
                make_cells(_write_name(first), suite, *(cells.get((suite, m), GridCell("")) for m in metrics))
            )
    columns = ("Metric", *suites) if across else ("Suite", *metrics.values())
    breaks = frozenset[int]() if across else frozenset(range(len(suites), len(body), len(suites)))
    caption = "differences by suite, in percentage points"
    header = ("By suite, points", *columns)
    return Grid(caption, header, body, names=2, headline=range(2, len(header)), breaks=breaks)


def _write_value(row: DifferenceRow, value: float) -> str:
    return BROKEN if row.verdict == BROKEN else write_number(value)


def _write_name(row: DifferenceRow) -> GridCell:
    """The compared side, and below it where it was compared, as far as the heading does not say it."""
    around = {
        Axis.DEFENSE: (row.attack,),
        Axis.MODEL: (row.defense, row.attack),
        Axis.ATTACK: (row.defense,),
        Axis.RUN: (row.model, row.defense, row.attack),
    }[Axis(row.by)]
    benign = row.attack == NO_ATTACK and row.by != Axis.ATTACK
    # Of a suspect row a note below says why; a broken one has its reason in place of its numbers.
    verdict = shorten_verdict(row.verdict, row.reasons)
    details = " / ".join(around[:-1] if benign else around), verdict if row.verdict == BROKEN else ""
    name = f"{row.compared} {SUSPECT_MARK}" if verdict and row.verdict == SUSPECT else row.compared
    return GridCell(name, ", ".join(filter(None, details)))


def _write_difference(row: DifferenceRow, *, starred: bool = False) -> GridCell:
    if math.isnan(row.difference):
        return GridCell(_write_value(row, row.difference))
    star = "*" if starred and row.p_holm < _SIGNIFICANT and row.verdict == VALID else ""
    interval = "" if math.isnan(row.ci_low) else f"{row.ci_low:+.1f} to {row.ci_high:+.1f}"
    return GridCell(f"{row.difference:+.2f}{star}", interval)


def write_p(p: float) -> str:
    """A p-value to be read: four decimals, or that it is smaller."""
    return "<0.0001" if p < 0.0001 else write_number(p, ".4f")


def _write_notes(comparison: Comparison) -> Iterator[str]:
    compared = [
        case for pairing in comparison.pairings.values() for pair in pairing.pairs for case in pair.cases
    ]
    yield from comparison.notes
    yield from write_verdict_notes(comparison.rows)
    yield from write_benchmark_change_notes(row.benchmark for row in comparison.rows)
    yield from _EXPLAINED
    if any(case.simulated for case in compared):
        yield SIMULATED_NOTE
    yield from write_provenance_notes(compared)
    yield from write_few_task_notes(comparison)
    yield from count_notes(comparison)


def count_notes(comparison: Comparison) -> Iterator[str]:
    """Say where not every case was compared, once for all sides it holds of, and what met nothing."""
    texts: defaultdict[tuple[MeasuredCell, str], list[str]] = defaultdict(list)
    for contest, pairing in comparison.pairings.items():
        parts = (
            (pairing.only_baseline, f"only under {contest.baseline}"),
            (pairing.only_defense, f"only under {contest.compared}"),
            (pairing.errored - pairing.no_text, "errored on one side"),
            (pairing.no_text, "without a text, for an attacker gave none to try"),
        )
        if any(count for count, _ in parts):
            listed = ", ".join(f"{count} {reason}" for count, reason in parts if count)
            text = f"{len(pairing.pairs)} cases compared; left out: {listed}."
            texts[contest.field, text].append(contest.compared)
        unknown = sum(None in (pair.baseline.exposed_raw, pair.defense.exposed_raw) for pair in pairing.pairs)
        if unknown and contest.field.attack != NO_ATTACK:
            text = f"exposure unknown for {unknown} cases, which are not among the exposed."
            texts[contest.field, text].append(contest.compared)
    for (met, text), sides in texts.items():
        yield f"{join_names(sides)} against {comparison.baseline}, {met.description}: {text}"
    for alone, count in comparison.unopposed.items():
        cases = "1 case" if count == 1 else f"{count} cases"
        yield f"{alone.description}: {cases} under {comparison.baseline} alone, nothing to compare them with."


FEW = 6
"""Tasks of one kind below which a difference that is called significant is said to rest on few."""


def write_few_task_notes(comparison: Comparison) -> Iterator[str]:
    """A line per significant overall difference that few tasks carry, or with a side that few tasks break."""
    broken = False
    overall = [row for row in comparison.rows if (row.suite, row.cases) == (OVERALL, ALL_CASES)]
    significant = group_by(
        (row for row in overall if row.p < LEVEL and row.verdict == VALID),
        attrgetter(*MeasuredCell._fields, "baseline", "compared"),
    )
    for contest, pairing in comparison.pairings.items():
        sides = contest.baseline, contest.compared
        cells = [MeasuredCell.of(pair.defense) for pair in pairing.pairs[:1]]
        for row in significant.get((*cells[0], *sides), ()) if cells else ():
            # Benign cases, and attacks without a goal, have no injection tasks.
            counts = [
                (row.differing_user_tasks, "user task"),
                (row.differing_injection_tasks, "injection task"),
            ]
            tasks = [(count, kind) for index, (count, kind) in enumerate(counts) if count or not index]
            if min(count for count, _ in tasks) < FEW:
                few = " and ".join(format_count(count, kind) for count, kind in tasks)
                yield f"{contest.title}: {comparison.titles[row.metric]} differs in {few} only."
            aimed = [(task, pair) for pair in pairing.pairs if (task := get_injection_task(pair)) is not None]
            before = len({task for task, pair in aimed if pair.baseline.injection_success})
            after = len({task for task, pair in aimed if pair.defense.injection_success})
            if row.metric == TARGETED_ASR and 2 * min(before, after) < max(before, after):
                broken = True
                of = len({task for task, _ in aimed})
                yield (
                    f"{contest.title}: of {of} injection tasks, {after} broke {contest.compared} and {before} "
                    f"{contest.baseline} (cases differ in {row.differing_injection_tasks})."
                )
    if broken:
        yield (
            "Where few injection tasks out of many break one side, a run may hold none of them: up to 11% "
            "of equal sides are then told apart at p < 0.05, instead of 5% (docs/statistics.md)."
        )


def _collect_data(comparison: Comparison, records: LongForm) -> dict[str, Any]:
    pairings = [
        {
            **contest.field._asdict(),
            "baseline": contest.baseline,
            "compared": len(pairing.pairs),
            "errored": pairing.errored,
            "only_baseline": pairing.only_baseline,
            "only_compared": pairing.only_defense,
        }
        for contest, pairing in comparison.pairings.items()
    ]
    unopposed = [{**field._asdict(), "cases": count} for field, count in comparison.unopposed.items()]
    return {
        "by": comparison.by.value,
        "baseline": comparison.baseline,
        "differences": records.rows,
        "flips": [*map(make_flip_record, comparison.flips)],
        "pairings": pairings,
        "unopposed": unopposed,
    }


_FlipKind = tuple[Contest, str, bool]
"""Contest, heading of the metric, and whether the outcome occurred on the compared side."""


def _make_flip_grid(
    groups: Mapping[_FlipKind, Sequence[CaseFlip]], limit: int | None, comparison: Comparison
) -> Grid:
    rows, breaks, several = [], set(), False
    fields = [(of.field.model, of.field.defense, of.field.attack) for of, _, _ in groups]
    # Where the sides met, as far as it is not the same in all; what is benign is told by its metric.
    named = [{name for name in names if name not in ("", NO_ATTACK)} for names in zip(*fields, strict=True)]
    for (contest, heading, gained), names, flips in zip(groups, fields, groups.values(), strict=True):
        labels = [
            name for name, all_of in zip(names, named, strict=True) if name in all_of and len(all_of) > 1
        ]
        signed = f"{'+' if gained else '-'}{len(flips)}"
        head = make_cells(GridCell(contest.compared, " / ".join(labels)), heading, signed)
        for flip in flips[:limit]:
            rows.append((*head, *map(GridCell, (_name_case(flip), *map(make_case_id, flip.pair.cases)))))
            head = make_cells("", "", "")  # of a kind only the first line says what it is
        several = several or len(flips[:limit]) > 1
        breaks.add(len(rows))
    compared = comparison.by.value.capitalize()
    header = (compared, "Metric", "+/-", "Case", f"Id, {comparison.baseline}", f"Id, {compared.lower()}")
    between = frozenset(breaks - {len(rows)}) if several else frozenset()
    return Grid("flipped cases", header, rows, names=4, breaks=between, wraps=frozenset({1, 3}))


def _name_case(flip: CaseFlip) -> str:
    case = flip.pair.defense
    tasks = " x ".join(task for task in (case.user_task_id, case.injection_task_id) if task)
    return f"{case.suite} {tasks}" + (f" epoch {case.epoch}" if case.epoch else "")


FLIP_COLUMNS = (
    *("metric", "benchmark", "version", "model", "defense", "attack", "baseline", "compared", "gained"),
    *("suite", "user_task_id", "injection_task_id", "epoch"),
    *("baseline_case", "compared_case", "baseline_file", "file"),
)
"""Columns of a flip for programs; `model`, `defense` and `attack` are those of the compared side's case."""


def make_flip_record(flip: CaseFlip) -> dict[str, str | int | bool | None]:
    """One flip for programs, under `FLIP_COLUMNS`."""
    first, second = flip.pair.cases
    values = (
        *(flip.metric, second.benchmark, second.version, second.table_model, second.defense, second.attack),
        *(flip.contest.baseline, flip.contest.compared, flip.gained),
        *(second.suite, second.user_task_id, second.injection_task_id, second.epoch),
        *(make_case_id(first), make_case_id(second), first.source, second.source),
    )
    return dict(zip(FLIP_COLUMNS, values, strict=True))
