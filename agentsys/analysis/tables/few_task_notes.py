"""Notes on comparisons that rest on few tasks: where the paired test is bolder than it says.

Tasks are seen as drawn from many. If a few injection tasks out of many break a defense, most runs hold none
of them; the defense then seems to stop everything, and agreement among the tasks that were drawn says nothing
of those that were not. How often equal defenses are then told apart: docs/statistics.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentsys.analysis.metrics.compare import Comparison, injection_task
from agentsys.analysis.metrics.difference_row import ALL_CASES, Contest, DifferenceRow
from agentsys.analysis.metrics.rates import TARGETED_ASR, MeasuredCell
from agentsys.analysis.statistics.difference_test import LEVEL
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.statistics.paired import Pair

FEW = 6
"""Tasks of one kind below which a difference that is called significant is said to rest on few."""


def few_task_notes(found: Comparison) -> Iterator[str]:
    """A line per significant overall difference that few tasks carry, or with a side that few tasks break."""
    broken = False
    for contest, pairing in found.pairings.items():
        for row in _significant(found, contest, pairing.pairs):
            if few := _few_differ(row):
                yield f"{contest.title}: {found.titles[row.metric]} differs in {few} only."
            if row.metric == TARGETED_ASR and (few := _few_break(contest, row, pairing.pairs)):
                broken = True
                yield f"{contest.title}: {few}."
    if broken:
        yield (
            "Where few injection tasks out of many break one side, a run may hold none of them: up to 11% "
            "of equal sides are then told apart at p < 0.05, instead of 5% (docs/statistics.md)."
        )


def broken_by(pairs: Iterable[Pair]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Injection tasks that were carried out in some case: on the baseline's side, and on the other."""
    before, after = set(), set()
    for pair in pairs:
        task = injection_task(pair)
        if task is not None and pair.baseline.injection_success:
            before.add(task)
        if task is not None and pair.defense.injection_success:
            after.add(task)
    return before, after


def _significant(found: Comparison, contest: Contest, pairs: Sequence[Pair]) -> Iterator[DifferenceRow]:
    """The overall rows of one contest, on all its cases, in which p is below 0.05."""
    ours = MeasuredCell.of(pairs[0].defense) if pairs else None
    for row in found.rows:
        cell = MeasuredCell(row.benchmark, row.version, row.model, row.defense, row.attack)
        met = cell == ours and (row.baseline, row.compared) == (contest.baseline, contest.compared)
        if met and (row.suite, row.cases) == (OVERALL, ALL_CASES) and row.p < LEVEL:
            yield row


def _few_differ(row: DifferenceRow) -> str | None:
    tasks = [(row.differing_user_tasks, "user")]
    if row.differing_injection_tasks:  # benign cases, and attacks without a goal, have none
        tasks.append((row.differing_injection_tasks, "injection"))
    if min(count for count, _ in tasks) >= FEW:
        return None
    return " and ".join(f"{count} {kind} task{'' if count == 1 else 's'}" for count, kind in tasks)


def _few_break(contest: Contest, row: DifferenceRow, pairs: Sequence[Pair]) -> str | None:
    before, after = (len(tasks) for tasks in broken_by(pairs))
    if 2 * min(before, after) >= max(before, after):
        return None
    of = len({injection_task(pair) for pair in pairs} - {None})
    return (
        f"of {of} injection tasks, {after} broke {contest.compared} and {before} {contest.baseline} "
        f"(cases differ in {row.differing_injection_tasks})"
    )
