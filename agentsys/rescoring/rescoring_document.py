"""A re-scoring as a document: agreement per suite, fixed scores, every flip with its reason, omissions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from agentsys.analysis.tables.document import Document, Grid, cells
from agentsys.rescoring.agreement import Agreement, agreements
from agentsys.rescoring.fixed_document import changed_grid, fixed_grids, fixed_notes
from agentsys.rescoring.flip import Flip, Reason
from agentsys.rescoring.rescore import Rescoring
from agentsys.rescoring.trajectories.files import SkippedRecord
from agentsys.rescoring.trajectories.unusable import Obstacle

_NAMED = 3
"""Skipped records named per kind; the JSON has all of them."""

_EXPLAINED = (
    "Utility and security: records whose score came out as recorded. A benign run has no security to "
    "disagree about and counts as agreeing; the attacked ones are counted again beside it.",
)
_REASONS = {
    Reason.CHECKER: "the same calls score as recorded under the versions named",
    Reason.CLOCK: "they score as recorded with the record's own time stamps",
    Reason.DATA: "a tool returns another text today, or the data has another hash: found, not a proven cause",
    Reason.NOT_EXPLAINED: "no version, no clock and no difference in tool texts explains it",
}


def rescoring_document(found: Rescoring) -> Document:
    """Tables and notes for every writer.

    Args:
        found: From `agentsys.rescoring.rescore.rescore`.
    """
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


def _flips(flips: Sequence[Flip]) -> Grid:
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


def _notes(found: Rescoring, flips: Sequence[Flip]) -> Iterator[str]:
    yield from _EXPLAINED
    for reason, meaning in _REASONS.items():
        count = sum(flip.reason is reason for flip in flips)
        if count:
            yield f"{reason.value} ({count}): {meaning}."
    yield from fixed_notes(found)
    for obstacle in Obstacle:
        skipped = [record for record in found.skipped if record.obstacle is obstacle]
        if skipped:
            yield _skipped_note(obstacle, skipped)


def _skipped_note(obstacle: Obstacle, skipped: Sequence[SkippedRecord]) -> str:
    named = "; ".join(f"{record.source}: {record.reason}" for record in skipped[:_NAMED])
    rest = len(skipped) - _NAMED
    more = f"; and {rest} more" if rest > 0 else ""
    return f"Skipped, {obstacle.value}: {len(skipped)} ({named}{more})."
