"""A re-scoring as a document: agreement per suite, fixed scores, every flip with its reason, omissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from agentsys.analysis.metrics.repaired_scores import described
from agentsys.analysis.tables.document import Document, Grid, GridCell, cells
from agentsys.audit.rescoring.agreement import (
    ALL,
    Agreement,
    FixedRow,
    agreements,
    changed_cases,
    fixed_rows,
    has_both,
)
from agentsys.audit.rescoring.explain import Reason, ScoreFlip
from agentsys.audit.rescoring.rescore import RescoredCase, Rescoring
from agentsys.audit.rescoring.trajectories.unusable import RecordFault
from agentsys.grouping import grouped
from agentsys.records.case_row import NO_ATTACK

_NAMED = 3
"""Skipped records named per kind; the JSON has all of them."""

_EXPLAINED = (
    "Utility and security: records whose score came out as recorded. A benign run has no security to "
    "disagree about and counts as agreeing; the attacked ones are counted again beside it.",
)
_REASONS = {
    Reason.CHECKER: "the same calls score as recorded under the versions named",
    Reason.CLOCK: "they score as recorded with the record's own time stamps",
    Reason.DRAWN: "tools drew a code or a number of which the record does not tell",
    Reason.DATA: "a tool returns another text today, or the data has another hash: found, not a proven cause",
    Reason.NOT_EXPLAINED: "no version, no clock and no difference in tool texts explains it",
}


def rescoring_document(found: Rescoring) -> Document:
    """Tables and notes for every writer."""
    fixed = fixed_grids(found.cases)
    sections = [
        (
            f"{pipeline}, re-scored under {version}",
            [_agreement(list(rows)), *([fixed[pipeline, version]] if (pipeline, version) in fixed else [])],
        )
        for (pipeline, version), rows in groupby(agreements(found.cases), lambda r: (r.pipeline, r.version))
    ]
    flips = [flip for case in found.cases for flip in case.flips]
    if flips:
        sections.append((f"Flips: {len(flips)}", [_flips(flips)]))
    changed = changed_grid(found.cases)
    if changed.rows:
        sections.append((f"Turned by a fix: {len(changed.rows)}", [changed]))
    return Document(sections, tuple(_notes(found, flips)))


def _agreement(rows: Sequence[Agreement]) -> Grid:
    header = (
        "Suite",
        "Cases",
        "Utility agrees",
        "Security agrees",
        "of attacked",
        "Solved",
        "Attacks succeeded",
    )
    lines = [
        cells(
            row.suite,
            str(row.cases),
            f"{row.utility} of {row.cases}",
            f"{row.security} of {row.cases}",
            f"{row.attacked_security} of {row.attacked}",
            f"{row.solved_recorded} -> {row.solved}",
            f"{row.succeeded_recorded} -> {row.succeeded}",
        )
        for row in rows
    ]
    return Grid("agreement with the record; recorded -> re-scored", header, lines, names=1)


def _flips(flips: Sequence[ScoreFlip]) -> Grid:
    header = ("Suite", "User task", "Injection task", "Attack", "Score", "Flip", "Reason", "Evidence")
    lines = [
        cells(
            flip.trajectory.suite,
            flip.trajectory.user_task_id,
            flip.trajectory.injection_task_id or "",
            "" if flip.trajectory.is_benign else flip.trajectory.attack,
            flip.score,
            f"{flip.recorded} -> {flip.rescored}".lower(),
            flip.reason.value,
            flip.detail,
        )
        for flip in flips
    ]
    return Grid("scores that came out otherwise", header, lines, names=8)


def _notes(found: Rescoring, flips: Sequence[ScoreFlip]) -> Iterator[str]:
    yield from _EXPLAINED
    for reason, meaning in _REASONS.items():
        count = sum(flip.reason is reason for flip in flips)
        if count:
            yield f"{reason.value} ({count}): {meaning}."
    yield from fixed_notes(found)
    for obstacle in RecordFault:
        skipped = [record for record in found.skipped if record.obstacle is obstacle]
        if skipped:
            named = "; ".join(f"{record.source}: {record.reason}" for record in skipped[:_NAMED])
            rest = len(skipped) - _NAMED
            more = f"; and {rest} more" if rest > 0 else ""
            yield f"Skipped, {obstacle.value}: {len(skipped)} ({named}{more})."


def fixed_grids(cases: Sequence[RescoredCase]) -> dict[tuple[str, str], Grid]:
    """(Pipeline, version) -> official and fixed scores side by side."""
    groups = grouped(fixed_rows(cases), lambda row: (row.pipeline, row.version))
    return {key: _side_by_side(rows) for key, rows in groups.items()}


def _side_by_side(rows: Sequence[FixedRow]) -> Grid:
    turning = [name for name in rows[0].changed_by if any(row.changed_by[name] for row in rows)]
    header = ("Attack", "Suite", "Cases", "Solved", "fixed", "Attacks succeeded", "fixed", *turning)
    lines = [
        cells(
            row.attack,
            row.suite,
            str(row.cases),
            *(_counted(row, rows, name) for name in ("solved", "solved_fixed")),
            *(_succeeded(row, rows, name) for name in ("succeeded", "succeeded_fixed")),
            *(str(row.changed_by[name]) for name in turning),
        )
        for row in rows
    ]
    caption = "official and fixed scores, in percent of the cases; the last columns: cases that a fix turned"
    return Grid(caption, header, lines, names=2)


def _succeeded(row: FixedRow, rows: Sequence[FixedRow], name: str) -> GridCell:
    return GridCell("") if row.attack == NO_ATTACK else _counted(row, rows, name)


def _counted(row: FixedRow, rows: Sequence[FixedRow], name: str) -> GridCell:
    """A number of records, with its share: of all suites together the unweighted mean of theirs."""
    of = [row] if row.suite != ALL else [one for one in rows if one.attack == row.attack and one.suite != ALL]
    shares = [getattr(one, name) / one.cases for one in of]
    return GridCell(str(getattr(row, name)), f"{100 * sum(shares) / len(shares):.2f}")


def changed_grid(cases: Sequence[RescoredCase]) -> Grid:
    """Every record of which a fix turned a score."""
    tasks = ("Pipeline", "Suite", "User task", "Injection task", "Attack")
    header = (*tasks, "Utility", "Attack success", "Fixes")
    lines = [_changed(case) for case in changed_cases(cases)]
    return Grid("scores that a fix turned, official -> fixed", header, lines, names=8)


def _changed(case: RescoredCase) -> tuple[GridCell, ...]:
    done, fixed = case.trajectory, case.fixed
    assert fixed is not None
    return cells(
        done.shown_pipeline,
        done.suite,
        done.user_task_id,
        done.injection_task_id or "",
        "" if done.is_benign else done.attack,
        _turned(case.scores.utility, fixed.utility),
        "" if done.is_benign else _turned(case.scores.security, fixed.security),
        ", ".join(fixed.changed_by),
    )


def _turned(official: bool | None, fixed: bool | None) -> str:
    return str(official).lower() if official == fixed else f"{official} -> {fixed}".lower()


def fixed_notes(found: Rescoring) -> Iterator[str]:
    """Say what has to stand below these grids."""
    scored = [case for case in found.cases if has_both(case)]
    if scored:
        yield (
            f"Fixed: the same executions scored once more under {', '.join(map(described, found.fixes))}. "
            f"{len(changed_cases(scored))} of {len(scored)} cases turned. In the line {ALL} the shares are "
            "unweighted means of the suites."
        )
    failed = sum(case.fixed is not None and not has_both(case) for case in found.cases)
    if failed:
        yield f"Fixed: {failed} cases on which a fix itself failed are in no number of these."
    with_section = [case for case in found.cases if case.utility_of_answer is not None]
    if with_section:
        yield _answer_note(with_section)


def _answer_note(cases: Sequence[RescoredCase]) -> str:
    lost = sum(case.scores.utility and not case.utility_of_answer for case in cases)
    gained = sum(bool(case.utility_of_answer) and not case.scores.utility for case in cases)
    return (
        f"The last message of {len(cases)} cases has sections, and checks judge it whole. Were only its "
        f"answer section judged, which is what a user sees, the utility of {lost} of them would turn false "
        f"and of {gained} true."
    )
