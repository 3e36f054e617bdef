"""The cases that two sides of a comparison decided differently, as grids with links to their trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.metrics.compare import CaseFlip
from agentsys.analysis.metrics.difference_row import Contest
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.tables.document import Grid, GridCell, cells
from agentsys.records.case_id import case_id
from agentsys.records.case_row import NO_ATTACK


@dataclass(frozen=True)
class ReportPages:
    """The reports (`agentsys report`) of what is compared, so that flipped cases can be linked to."""

    of_side: Mapping[str, Path] = field(default_factory=dict)
    """Side -> the page that shows its cases; a side without a page has no links."""

    def links(self, flip: CaseFlip) -> tuple[str, str]:
        """A link for the baseline's case and one for the other, to both together where one page has both."""
        baseline, compared = case_id(flip.pair.baseline), case_id(flip.pair.defense)
        first, second = (self.of_side.get(side) for side in (flip.contest.baseline, flip.contest.compared))
        if first is not None and first == second:
            return _link(first, f"case={baseline}&beside={compared}"), _link(
                first, f"case={compared}&beside={baseline}"
            )
        return _link(first, f"case={baseline}"), _link(second, f"case={compared}")


def _link(page: Path | None, place: str) -> str:
    return "" if page is None else f"{page.absolute().as_uri()}#{place}"


class FlipGroup(NamedTuple):
    """Flips of one kind."""

    contest: Contest
    metric: str
    gained: bool
    """Whether the outcome occurred on the compared side; otherwise on the baseline's."""
    total: int
    listed: tuple[CaseFlip, ...]
    """The first of them."""
    heading: str
    """The metric's."""

    @property
    def title(self) -> str:
        """E.g. `Targeted ASR, direct (gpt-4o): only none, not agentsys, 12 cases, the first 5`."""
        only, other = self.contest.compared, self.contest.baseline
        if not self.gained:
            only, other = other, only
        where = self.contest.field
        shared = "".join(f", {name}" for name in (where.defense, where.attack) if name not in ("", NO_ATTACK))
        model = f" ({where.model})" if where.model else ""
        more = f", the first {len(self.listed)}" if len(self.listed) < self.total else ""
        count = "1 case" if self.total == 1 else f"{self.total} cases"
        return f"{self.heading}{shared}{model}: only {only}, not {other}, {count}{more}"


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


def flip_grids(groups: Iterable[FlipGroup], pages: ReportPages) -> Iterator[Grid]:
    """A table for each group: the case, and its id on both sides.

    Args:
        groups: From `flip_groups`.
        pages: Where the ids lead.
    """
    for group in groups:
        rows = [cells(_case(flip), *_ids(flip, pages)) for flip in group.listed]
        header = ("Case", group.contest.baseline, group.contest.compared)
        yield Grid(group.title, header, rows, names=3, wraps=frozenset({0}), captioned=True)


def _ids(flip: CaseFlip, pages: ReportPages) -> Iterator[GridCell]:
    for case, link in zip(flip.pair, pages.links(flip), strict=True):
        yield GridCell(case_id(case), link=link)


def _case(flip: CaseFlip) -> str:
    case = flip.pair.defense
    tasks = " x ".join(task for task in (case.user_task_id, case.injection_task_id) if task)
    return f"{case.suite} {tasks}" + (f" epoch {case.epoch}" if case.epoch else "")


FLIP_COLUMNS = (
    "metric",
    "benchmark",
    "version",
    "model",
    "defense",
    "attack",
    "baseline",
    "compared",
    "gained",
    "suite",
    "user_task_id",
    "injection_task_id",
    "epoch",
    "baseline_case",
    "compared_case",
    "baseline_file",
    "file",
)
"""Columns of a flip for programs; `model`, `defense` and `attack` are those of the compared side's case."""


def flip_record(flip: CaseFlip) -> dict[str, str | int | bool | None]:
    """One flip for programs, under `FLIP_COLUMNS`."""
    first, second = flip.pair
    values = (
        flip.metric,
        second.benchmark,
        second.version,
        second.shown_model,
        second.defense,
        second.attack,
        flip.contest.baseline,
        flip.contest.compared,
        flip.gained,
        second.suite,
        second.user_task_id,
        second.injection_task_id,
        second.epoch,
        case_id(first),
        case_id(second),
        first.source,
        second.source,
    )
    return dict(zip(FLIP_COLUMNS, values, strict=True))
