"""The same cells several times over, line by line: official and fixed scores, with and without a tag."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.metrics.rates import MetricRow, measure
from agentsys.analysis.metrics.repaired_scores import FIXED, fixed_cases
from agentsys.analysis.metrics.tags import split, tag_of
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.report import Report, report, unexposed_share
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow


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
    fixes: tuple[str, ...] = ()
    """What fixed scores were made under; empty where none are shown."""


def variants_of(cases: Sequence[CaseRow], *, fixed: bool = False, tag: str | None = None) -> Variants:
    """The variants that were asked for; without either, the cases as they are.

    Args:
        cases: Cases in any order.
        fixed: Whether fixed scores stand beside the official ones.
        tag: A tag's name, to split by.

    Raises:
        ConfigError: If no case holds fixed scores, or there is no such tag.
    """
    listed, notes = [Variant((), tuple(cases))], []
    fixes: tuple[str, ...] = ()
    if tag is not None:
        found = split(cases, tag_of(tag))
        listed = [Variant((tag,), found.tagged), Variant((f"not {tag}",), found.others)]
        notes.append(found.note)
    if fixed:
        scored = fixed_cases(cases)
        if not scored.fixes:
            raise ConfigError(
                f"None of these {len(cases)} cases holds fixed scores: only runs of ours on AgentDojo do. For"
                " others: agentsys rescore DIR --version V --out NEW, then agentsys results NEW --fixed."
            )
        notes = [*scored.notes, *notes]
        fixes = tuple(dict.fromkeys(name for one in scored.fixes for name in one))
        listed = [
            both
            for one in listed
            for both in (one, Variant((*one.marks, FIXED), fixed_cases(one.cases).cases))
        ]
    return Variants(tuple(listed), tuple(notes), fixes)


def variant_report(
    reading: LoadedCases,
    variants: Variants,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    replicates: int = 2000,
) -> Report:
    """A report whose lines are the variants of each defense, one below the other.

    Its footnotes speak of all cases and of official scores.
    """
    whole = report(reading, errors, own=own, replicates=replicates)
    measured = [
        (variant, measure(variant.cases, errors, own=own, replicates=replicates))
        for variant in variants.listed
    ]
    unexposed = {
        cell._replace(defense=variant.name(cell.defense)): share
        for variant in variants.listed
        for cell, share in unexposed_share(variant.cases).items()
    }
    notes = (*variants.notes, *whole.notes)
    rows = _interleaved(whole.rows, measured)
    return Report(rows, unexposed, notes, denials=whole.denials, titles=whole.titles)


def _interleaved(
    order: Iterable[MetricRow], measured: Iterable[tuple[Variant, list[MetricRow]]]
) -> list[MetricRow]:
    """All rows, a defense's variants together, the defenses in the order of `order`."""
    by_defense: dict[tuple[str, str, str, str], list[MetricRow]] = {_defense(row): [] for row in order}
    for variant, rows in measured:
        for row in rows:
            by_defense[_defense(row)].append(replace(row, defense=variant.name(row.defense)))
    return [row for rows in by_defense.values() for row in rows]


def _defense(row: MetricRow) -> tuple[str, str, str, str]:
    return row.benchmark, row.version, row.model, row.defense
