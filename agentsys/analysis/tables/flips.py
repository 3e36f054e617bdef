"""The cases that two defenses decided differently, as a grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentsys.analysis.metrics.compare import CaseFlip
from agentsys.analysis.metrics.difference_row import Contest
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.tables.document import Grid, cells
from agentsys.records.case_row import NO_ATTACK


class FlipGroup(NamedTuple):
    """Flips of one kind."""

    contest: Contest
    metric: str
    gained: bool
    """Whether the outcome occurred under the defense; otherwise under the baseline."""
    total: int
    listed: tuple[CaseFlip, ...]
    """The first of them."""
    heading: str
    """The metric's."""

    @property
    def title(self) -> str:
        """E.g. `Targeted ASR, direct (gpt-4o): only none, not agentsys, 12 cases, the first 5`."""
        only, other = self.contest.defense, self.contest.baseline
        if not self.gained:
            only, other = other, only
        attack = self.contest.field.attack
        place = "" if attack == NO_ATTACK else f", {attack}"
        more = f", the first {len(self.listed)}" if len(self.listed) < self.total else ""
        return (
            f"{self.heading}{place} ({self.contest.field.model}): "
            f"only {only}, not {other}, {self.total} cases{more}"
        )


def flip_groups(
    flips: Iterable[CaseFlip], limit: int, titles: Mapping[str, str] = METRIC_TITLES
) -> list[FlipGroup]:
    """Group flips by contest, metric and direction.

    Args:
        flips: Flips in the order of the comparison.
        limit: How many to list per group; with 0 there are no groups.
        titles: Metric -> heading.
    """
    groups: dict[tuple[Contest, str, bool], list[CaseFlip]] = {}
    for flip in flips if limit > 0 else ():
        groups.setdefault((flip.contest, flip.metric, flip.gained), []).append(flip)
    return [
        FlipGroup(*key, len(found), tuple(found[:limit]), titles[key[1]]) for key, found in groups.items()
    ]


def flip_grid(groups: Sequence[FlipGroup]) -> Grid:
    """Put the flips into a table; a terminal shows a line per case, so that its files can be copied."""
    rows = [
        cells(group.title, _case(flip), flip.pair.baseline.source, flip.pair.defense.source)
        for group in groups
        for flip in group.listed
    ]
    header = ("Outcome", "Case", "Baseline's file", "Defense's file")
    return Grid("cases that flipped", header, rows, names=4, lines=tuple(_lines(groups)))


def _lines(groups: Sequence[FlipGroup]) -> Iterator[str]:
    for group in groups:
        yield f"{group.title}:"
        yield from (f"  {_case(flip)}: {_files(flip)}" for flip in group.listed)


def _case(flip: CaseFlip) -> str:
    case = flip.pair.defense
    tasks = " x ".join(task for task in (case.user_task_id, case.injection_task_id) if task)
    return f"{case.suite} {tasks}" + (f" epoch {case.epoch}" if case.epoch else "")


def _files(flip: CaseFlip) -> str:
    return f"{flip.pair.baseline.source} -> {flip.pair.defense.source}"
