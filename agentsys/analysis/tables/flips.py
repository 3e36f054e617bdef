"""The cases that two sides of a comparison decided differently, as grids with links to their trajectories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.metrics.compare import CaseFlip
from agentsys.analysis.metrics.difference_row import Contest
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.tables.document import Grid, GridCell, cells
from agentsys.records.case_row import NO_ATTACK, make_case_id


@dataclass(frozen=True)
class ReportPages:
    """The reports (`agentsys report`) of what is compared, so that flipped cases can be linked to."""

    of_side: Mapping[str, Path] = field(default_factory=dict)
    """Side -> the page that shows its cases; a side without a page has no links."""

    def links(self, flip: CaseFlip) -> tuple[str, str]:
        """A link for the baseline's case and one for the other, to both together where one page has both."""
        baseline, compared = make_case_id(flip.pair.baseline), make_case_id(flip.pair.defense)
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
    heading: str
    """The metric's."""
    gained: bool
    """Whether the outcome occurred on the compared side; otherwise on the baseline's."""
    total: int
    listed: tuple[CaseFlip, ...]
    """The first of them."""

    @property
    def signed(self) -> str:
        """How many there are, signed as in the tables above: `+3` are gained, `-21` lost."""
        return f"{'+' if self.gained else '-'}{self.total}"


def _places(groups: Sequence[FlipGroup]) -> list[str]:
    """Where the sides of each group met, as far as it is not the same in all, e.g. `gpt-4o / direct`."""
    fields = [(g.contest.field.model, g.contest.field.defense, g.contest.field.attack) for g in groups]
    # What is benign is told by its metric.
    told = [{name for name in names if name not in ("", NO_ATTACK)} for names in zip(*fields, strict=True)]
    return [
        " / ".join(
            name for name, all_of in zip(names, told, strict=True) if name in all_of and len(all_of) > 1
        )
        for names in fields
    ]


def flip_groups(
    flips: Iterable[CaseFlip], limit: int | None, titles: Mapping[str, str] = METRIC_TITLES
) -> list[FlipGroup]:
    """Group flips by contest, metric and direction.

    Args:
        flips: Flips in the order of the comparison.
        limit: How many to list per group; with 0 there are no groups, with None all are listed.
        titles: Metric -> heading.
    """
    groups: dict[tuple[Contest, str, bool], list[CaseFlip]] = {}
    for flip in flips if limit != 0 else ():
        groups.setdefault((flip.contest, titles[flip.metric], flip.gained), []).append(flip)
    return [FlipGroup(*key, len(found), tuple(found[:limit])) for key, found in groups.items()]


def flip_grid(groups: Sequence[FlipGroup], baseline: str, compared: str, pages: ReportPages) -> Grid:
    """All groups in one table: how many flips of a kind there are, and the first of them."""
    rows, breaks = [], set()
    for group, where in zip(groups, _places(groups), strict=True):
        told = (GridCell(group.contest.compared, where), GridCell(group.heading), GridCell(group.signed))
        for place, flip in enumerate(group.listed):
            # Of a kind only the first line says what it is.
            rows.append(
                (*(told if place == 0 else cells("", "", "")), *cells(_case(flip)), *_ids(flip, pages))
            )
        breaks.add(len(rows))
    several = any(len(group.listed) > 1 for group in groups)
    header = (compared, "Metric", "+/-", "Case", f"Id, {baseline}", f"Id, {compared.lower()}")
    between = frozenset(breaks - {len(rows)}) if several else frozenset()
    return Grid("flipped cases", header, rows, names=4, breaks=between, wraps=frozenset({1, 3}))


def _ids(flip: CaseFlip, pages: ReportPages) -> Iterator[GridCell]:
    for case, link in zip(flip.pair, pages.links(flip), strict=True):
        yield GridCell(make_case_id(case), link=link)


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
        second.table_model,
        second.defense,
        second.attack,
        flip.contest.baseline,
        flip.contest.compared,
        flip.gained,
        second.suite,
        second.user_task_id,
        second.injection_task_id,
        second.epoch,
        make_case_id(first),
        make_case_id(second),
        first.source,
        second.source,
    )
    return dict(zip(FLIP_COLUMNS, values, strict=True))
