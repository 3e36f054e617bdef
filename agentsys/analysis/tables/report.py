"""`Report`: the numbers of some folders and everything a reader must know beside them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from agentsys.analysis.metrics.benchmark_facts import measured_rows
from agentsys.analysis.metrics.denial import Denial, denial_notes, denials
from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.metrics.rates import METRIC_TITLES, MeasuredCell, MetricRow, in_cells, measure
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.error_rule import ErrorRule, outcome
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.benchmark_facts_grid import FactGrid, fact_grids, measured_notes
from agentsys.analysis.tables.exposure_notes import honesty_notes
from agentsys.analysis.tables.provenance_notes import SIMULATED_NOTE, replay_notes
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet, sheets
from agentsys.base.grouping import format_count
from agentsys.records.case_reader import LoadedCases, describe_repeated
from agentsys.records.case_row import NO_ATTACK, SERVED, CaseRow, is_simulated_name
from agentsys.records.stored_plan import describe_unfinished


@dataclass(frozen=True)
class Report:
    """Everything that a format shows of some folders."""

    rows: list[MetricRow]
    """The long form."""
    unexposed: dict[MeasuredCell, float] = field(default_factory=dict)
    """Attacked cells whose exposure is recorded -> percent of the cases without error in which no tool
    ever returned the payload: there the attack could not have worked, whatever the defense does."""
    notes: tuple[str, ...] = ()
    """Footnotes, one sentence or two each, as plain text with names as they were found."""
    measured: list[MetricRow] = field(default_factory=list)
    """Rates of what benchmarks measure besides the two scores, in the long form; mostly empty."""
    fact_grids: list[FactGrid] = field(default_factory=list)
    """The tables in which benchmarks want them shown."""
    denials: list[Denial] = field(default_factory=list)
    """Denials of service beside the same tasks without attack; mostly empty."""

    titles: Mapping[str, str] = field(default_factory=lambda: METRIC_TITLES)
    """Metric -> heading, in the order shown."""

    def unexposed_text(self, sheet: Sheet, line: ResultsLine) -> str:
        """Percent of a line's attacked cases in which no tool returned the payload; empty where unknown."""
        share = self.unexposed.get(
            MeasuredCell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
        )
        return "" if share is None else f"{share:.1f}"

    @property
    def long_form(self) -> list[MetricRow]:
        """Every number, for other programs."""
        paired = [row for denial in self.denials for row in denial.rows]
        return [*self.rows, *self.measured, *paired]


def numbers(
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    replicates: int = 2000,
) -> Report:
    """Measure everything that was read, for other programs: without what only people are told beside it.

    Args:
        reading: What was read, from `read_cases`.
        errors: What errored cases count as.
        own: Further metrics, of the user's own.
        replicates: Number of bootstrap replicates.
    """
    return Report(
        measure(reading.cases, errors, own=own, replicates=replicates),
        measured=measured_rows(reading.cases, replicates=replicates),
        denials=denials(reading.cases, errors, replicates=replicates),
        titles=METRIC_TITLES | {metric.name: metric.title for metric in own},
    )


def report(
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    replicates: int = 2000,
) -> Report:
    """The `numbers` of everything that was read, and everything a reader must know beside them."""
    found = numbers(reading, errors, own=own, replicates=replicates)
    # The most important first: a screen shows three of them.
    notes = [
        *describe_unfinished(reading.unfinished),
        *errored_notes(reading.cases, errors),
        *([SIMULATED_NOTE] if any(is_simulated_name(row.model) for row in found.rows) else []),
        *replay_notes(reading.cases),
        *_fewer_suites(found.rows),
        *honesty_notes(reading.cases, errors, replicates=replicates),
        *measured_notes(found.measured, reading.cases),
        *denial_notes(found.denials),
        f"{CONFIDENCE:.0f}% intervals: user tasks and injection tasks resampled, {replicates} times. "
        "Overall: unweighted mean of the suites.",
        *_alike(found.rows),
        *_suites_drawn(reading.cases),
        *_left_out(reading),
    ]
    return replace(
        found,
        unexposed=unexposed_share(reading.cases),
        notes=tuple(notes),
        fact_grids=fact_grids(reading.cases),
    )


def unexposed_share(cases: Iterable[CaseRow]) -> dict[MeasuredCell, float]:
    """Per attacked cell, percent of cases without error whose payload no tool ever returned.

    Cells with unknown exposure are absent.
    """
    known = [
        case
        for case in cases
        if case.attack != NO_ATTACK and case.exposed_raw is not None and case.status == "ok"
    ]
    return {
        cell: 100.0 * sum(not case.exposed_raw for case in found) / len(found)
        for cell, found in in_cells(known).items()
    }


def errored_notes(cases: Iterable[CaseRow], rule: ErrorRule) -> Iterator[str]:
    """Say how many of some cases errored, why, and what they count as; nothing where none did."""
    errored = [case for case in cases if case.status == "error" and case.is_scored]
    if not errored:
        return
    kinds = Counter(case.error_kind or "unknown" for case in errored)
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    counted = sum(outcome(case, rule) is not None for case in errored)
    if rule is ErrorRule.REPORT:
        yield f"Errored cases are left out of the rates: {len(errored)} ({listed})."
    else:
        yield (
            f"Errored cases: {len(errored)} ({listed}); {counted} of them counted as AgentDojo does "
            f"(user task failed, attack succeeded), {len(errored) - counted} left out."
        )


def _alike(rows: Iterable[MetricRow]) -> Iterator[str]:
    if any(row.suite == OVERALL and row.value in (0.0, 100.0) for row in rows):
        yield (
            "0 or 100 does not mean certainty: where all cases came out alike, the interval goes as far as "
            "it would for a single case that did not."
        )


def _fewer_suites(rows: Sequence[MetricRow]) -> Iterator[str]:
    for sheet in sheets(rows):
        for line in sheet.lines:
            if line.suites and line.suites != sheet.suites:
                yield f"{line.name}: overall covers {', '.join(line.suites)} only."


def _suites_drawn(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Say where suites take the place of user tasks (agentsys.analysis.statistics.single_task_suites)."""
    tasks: defaultdict[tuple[str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    one_of_each = {_task(case): case for case in cases}
    for (benchmark, version, suite, task), case in one_of_each.items():
        if case.is_scored:
            tasks[benchmark, version][suite].add(task)
    for (benchmark, version), suites in sorted(tasks.items()):
        if len(suites) > 1 and all(len(found) == 1 for found in suites.values()):
            yield (
                f"{benchmark} {version}: every suite has a single user task, so overall and pooled intervals "
                f"resample the {len(suites)} suites in their place."
            )


_task = attrgetter("benchmark", "version", "suite", "user_task_id")


def _left_out(reading: LoadedCases) -> Iterator[str]:
    alone = sum(case.is_injection_task_alone for case in reading.cases)
    if alone:
        yield f"Left out: {format_count(alone, 'run')} of injection tasks as if a user had asked for them."
    served = sum(case.benchmark == SERVED for case in reading.cases)
    if served:
        yield f"Without scores: {format_count(served, 'conversation')} of a served agent with its clients."
    yield from describe_repeated(reading.repeated_files)
