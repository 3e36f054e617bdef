"""`Sheet`: the long form arranged for reading, one sheet per benchmark, version and model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, METRIC_TITLES, TARGETED_ASR, MetricRow
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK

MOST_ACROSS = 6
"""Suites that stand side by side; with more, a table is too wide to be read."""


@dataclass(frozen=True)
class ResultsLine:
    """One defense under one attack (or under none, where no attack was run)."""

    defense: str
    attack: str
    numbers: dict[tuple[str, str], MetricRow]
    """(metric, suite, `overall` or `pooled`) -> number; the benign utility is the defense's own."""

    @property
    def suites(self) -> list[str]:
        """The suites this line's attack (or, without one, its benign cases) ran on."""
        metric = BENIGN_UTILITY if self.attack == NO_ATTACK else TARGETED_ASR
        return [suite for kind, suite in self.numbers if kind == metric and suite not in (OVERALL, POOLED)]

    @property
    def kinds(self) -> list[MetricRow]:
        """The numbers that tell of its benign and of its attacked cases, as far as there are any."""
        kinds = (self.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR))
        return [kind for kind in kinds if kind is not None]

    @property
    def counted(self) -> str:
        """Benign and attacked cases behind the rates, e.g. `97+629`."""
        return "+".join(str(kind.n) for kind in self.kinds)

    @property
    def errors(self) -> int:
        """Errored cases of both kinds."""
        return sum(kind.errors for kind in self.kinds)

    @property
    def name(self) -> str:
        """E.g. `agentsys / important_instructions`."""
        return self.defense if self.attack == NO_ATTACK else f"{self.defense} / {self.attack}"


@dataclass(frozen=True)
class Sheet:
    """Lines that can be compared: those of one model on one version of a benchmark."""

    benchmark: str
    version: str
    model: str
    lines: list[ResultsLine]
    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading, in the order shown."""

    @property
    def place(self) -> tuple[str, str, str]:
        """What its cells have in common, in the order of `MeasuredCell`."""
        return self.benchmark, self.version, self.model

    @property
    def title(self) -> str:
        """E.g. `gpt-4o on agentdojo v1.2.2`."""
        return f"{self.model} on {self.benchmark} {self.version}"

    @property
    def suites(self) -> list[str]:
        """Every suite that some line has, sorted."""
        return sorted({suite for line in self.lines for _, suite in line.numbers} - {OVERALL, POOLED})


def sheets(rows: Iterable[MetricRow], titles: Mapping[str, str] = METRIC_TITLES) -> list[Sheet]:
    """Arrange the long form; the order of its rows is kept."""
    by_sheet = group_by(rows, lambda row: (row.benchmark, row.version, row.model))
    return [
        Sheet(
            *key,
            [line for of in group_by(found, attrgetter("defense")).items() for line in _lines(*of)],
            titles,
        )
        for key, found in by_sheet.items()
    ]


def _lines(defense: str, rows: Sequence[MetricRow]) -> list[ResultsLine]:
    benign = {(row.metric, row.suite): row for row in rows if row.attack == NO_ATTACK}
    attacks = list(dict.fromkeys(row.attack for row in rows if row.attack != NO_ATTACK))
    if not attacks:
        return [ResultsLine(defense, NO_ATTACK, benign)]
    return [
        ResultsLine(
            defense, attack, benign | {(row.metric, row.suite): row for row in rows if row.attack == attack}
        )
        for attack in attacks
    ]
