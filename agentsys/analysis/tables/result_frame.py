"""`ResultFrame`: the one long form of what was measured of some runs, and its variants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.attack_success import Denial, find_paired_denials
from agentsys.analysis.metrics.case_measures import group_facts, measure_facts
from agentsys.analysis.metrics.cell_verdict import CellVerdict, name_line, shorten_verdict
from agentsys.analysis.metrics.comparison import DifferenceRow, compare_all_with_none
from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.metrics.task_tags import SCORE_FIXED, load_tag, select_fixed_scores, split_by_tag
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import NO_ATTACK, CaseRow


class ResultsLine(NamedTuple):
    """One defense under one attack (or under none, where no attack was run)."""

    defense: str
    attack: str
    numbers: dict[tuple[str, str], rates.MetricRow]
    """(metric, suite, `overall` or `pooled`) -> number; the benign utility is the defense's own."""
    kinds: list[rates.MetricRow]
    """The numbers that tell of its benign and of its attacked cases, as far as there are any."""
    errors: int
    """Errored cases of both kinds."""
    verdict: str
    """Grade and first reason of its cells' verdict; empty where there is nothing to say in the line."""

    @property
    def name(self) -> str:
        """E.g. `agentsys / important_instructions`."""
        return name_line(self.defense, self.attack)


class Sheet(NamedTuple):
    """Lines that can be compared: those of one model on one version of a benchmark.

    The first three fields are those of its cells, in the order of `MeasuredCell`.
    """

    benchmark: str
    version: str
    model: str
    lines: list[ResultsLine]
    titles: Mapping[str, str]
    """Metric -> heading, in the order shown."""
    title: str
    """E.g. `gpt-4o on agentdojo v1.2.2`."""
    suites: list[str]
    """Every suite that some line has, sorted."""


def arrange_sheets(
    rows: Iterable[rates.MetricRow], titles: Mapping[str, str] = rates.METRIC_TITLES
) -> list[Sheet]:
    """Arrange the long form; the order of its rows is kept.

    A defense has a line per attack, each with the benign numbers; the benign ones alone where no attack was run.
    """
    sheets = []
    for names, of_sheet in group_by(rows, lambda row: (row.benchmark, row.version, row.model)).items():
        benchmark, version, model = names
        lines = list[ResultsLine]()
        for defense, of_defense in group_by(of_sheet, lambda row: row.defense).items():
            by_attack = group_by(of_defense, lambda row: row.attack)
            benign = by_attack.pop(NO_ATTACK, [])
            for attack, attacked in (by_attack or {NO_ATTACK: []}).items():
                numbers = {(row.metric, row.suite): row for row in (*benign, *attacked)}
                both = (
                    numbers.get((metric, OVERALL)) for metric in (rates.BENIGN_UTILITY, rates.TARGETED_ASR)
                )
                kinds = [kind for kind in both if kind is not None]
                verdicts = (CellVerdict(kind.verdict, kind.reasons) for kind in kinds)
                told = shorten_verdict(*reduce(CellVerdict.join, verdicts, CellVerdict()))
                errors = sum(kind.errors for kind in kinds)
                lines.append(ResultsLine(defense, attack, numbers, kinds, errors, told))
        suites = sorted({row.suite for row in of_sheet} - {OVERALL, POOLED})
        sheets.append(Sheet(*names, lines, titles, f"{model} on {benchmark} {version}", suites))
    return sheets


@dataclass(frozen=True)
class Variant:
    """Some cases, and what tells their lines from the other variants'."""

    marks: tuple[str, ...]
    """Stand in parentheses behind the defense; empty for the cases as they are."""
    cases: tuple[CaseRow, ...]

    def name(self, defense: str) -> str:
        """E.g. `agentsys (action_open, fixed)`."""
        return f"{defense} ({', '.join(self.marks)})" if self.marks else defense


@dataclass(frozen=True)
class Variants:
    """The variants that are shown line by line."""

    listed: tuple[Variant, ...]
    """In the order of the lines of one defense."""
    notes: tuple[str, ...]
    """What has to be said of them."""


def make_variants(cases: Sequence[CaseRow], *, fixed: bool = False, tag: str | None = None) -> Variants:
    """The variants that were asked for; without either, the cases as they are.

    Raises:
        ConfigError: If no case holds fixed scores, or there is no such tag.
    """
    listed, notes = [Variant((), tuple(cases))], []
    if tag is not None:
        split = split_by_tag(cases, load_tag(tag))
        listed = [Variant((tag,), split.cases_with), Variant((f"not {tag}",), split.cases_without)]
        if split.cases_undecided:
            listed.append(Variant((f"{tag} unknown",), split.cases_undecided))
        notes.append(split.note)
    if fixed:
        scored = select_fixed_scores(cases)
        if not scored.fixes:
            raise ConfigError(
                f"None of these {len(cases)} cases holds fixed scores: only runs of ours on AgentDojo do. For"
                " others: agentsys rescore DIR --version V --out NEW, then agentsys results NEW --fixed."
            )
        notes = [*scored.notes, *notes]
        listed = [
            both
            for one in listed
            for both in (one, Variant((*one.marks, SCORE_FIXED), select_fixed_scores(one.cases).cases))
        ]
    return Variants(tuple(listed), tuple(notes))


class ResultFrame:
    """The long form of what was measured of some runs, a row a number, and what tables and notes take from it.

    A command makes it once and passes it on. Each part is worked out when it is asked for, and once: a screen
    shows few numbers, and data for programs have no notes. With variants the lines are those of each defense, one
    below the other, without what few runs have; footnotes speak of all cases and of official scores.
    """

    def __init__(
        self,
        reading: LoadedCases,
        errors: ErrorRule = ErrorRule.REPORT,
        *,
        own: Sequence[Metric] = (),
        brief: bool = False,
        variants: Variants | None = None,
    ) -> None:
        self.reading, self.errors, self.own = reading, errors, own
        self.brief = brief
        """Whether only overall numbers have intervals, which take long: a screen shows no others."""
        self.variants = variants or Variants((), ())
        self.whole = self if variants is None else ResultFrame(reading, errors, own=own, brief=True)
        """The frame that footnotes speak of."""
        self._varied = [(variant, rates.ScoredCells(variant.cases)) for variant in self.variants.listed]

    @cached_property
    def cells(self) -> rates.ScoredCells:
        """The cases that metrics are made of, by cell."""
        return rates.ScoredCells(self.reading.cases) if self.whole is self else self.whole.cells

    @cached_property
    def rows(self) -> list[rates.MetricRow]:
        """Every metric of every cell; of variants those of one defense together, in the order of the whole."""
        if self.whole is self:
            return rates.measure(self.cells, self.errors, own=self.own, brief=self.brief)
        by_defense: dict[tuple[str, ...], list[rates.MetricRow]] = {
            _make_defense_key(row): [] for row in self.whole.rows
        }
        for variant, cells in self._varied:
            for row in rates.measure(cells, self.errors, own=self.own):
                by_defense[_make_defense_key(row)].append(replace(row, defense=variant.name(row.defense)))
        return [row for rows in by_defense.values() for row in rows]

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Metric -> heading, in the order shown."""
        titles = rates.METRIC_TITLES | {metric.name: metric.title for metric in self.own}
        surface = any(row.metric == rates.NET_RESILIENCE for row in self.whole.rows)
        return titles | ({rates.NET_RESILIENCE: rates.NRP_TITLE} if surface else {})

    @cached_property
    def sheets(self) -> list[Sheet]:
        """The rows, a sheet per model and benchmark."""
        return arrange_sheets(self.rows, self.titles)

    @cached_property
    def fact_rows(self) -> list[rates.MetricRow]:
        """Rates of what benchmarks measure besides the two scores; mostly none, and never split."""
        return measure_facts(self.cells) if self.whole is self else []

    @cached_property
    def facts(self) -> Mapping[tuple[str, str], Mapping[str, DeclaredFact]]:
        """Benchmark and caption of a table in which it wants them shown -> name -> fact."""
        return group_facts(self.reading.cases)

    @cached_property
    def denials(self) -> list[Denial]:
        """Denials of service beside the same tasks without attack; mostly none."""
        return find_paired_denials(self.cells, self.errors)

    @cached_property
    def unexposed(self) -> dict[rates.MeasuredCell, float]:
        """Attacked cell -> percent of its cases without error whose payload no tool ever returned.

        There the attack could not have worked, whatever the defense does. Cells of unknown exposure are absent.
        """
        return {
            cell._replace(defense=variant.name(cell.defense)): share
            for variant, cells in self._varied or [(Variant((), ()), self.cells)]
            for cell, share in _compute_unexposed_shares(cells).items()
        }

    @cached_property
    def differences(self) -> list[DifferenceRow]:
        """Each defense less none, overall."""
        return compare_all_with_none(self.cells, self.errors)


def _compute_unexposed_shares(cells: rates.ScoredCells) -> dict[rates.MeasuredCell, float]:
    known = {
        cell: [case.exposed_raw for case in cases if case.exposed_raw is not None and case.status == "ok"]
        for cell, cases in cells.items()
        if cell.attack != NO_ATTACK
    }
    return {cell: 100.0 * exposed.count(False) / len(exposed) for cell, exposed in known.items() if exposed}


def _make_defense_key(row: rates.MetricRow) -> tuple[str, ...]:
    return row.benchmark, row.version, row.model, row.defense
