"""The numbers of some folders and what a reader must know beside them; and variants of them, line by line."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.attack_success import find_paired_denials, write_denial_notes
from agentsys.analysis.metrics.case_measures import measure_facts
from agentsys.analysis.metrics.cell_verdict import write_verdict_notes
from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.metrics.task_tags import SCORE_FIXED, load_tag, select_fixed_scores, split_by_tag
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, REPLICATES, ErrorRule, find_outcome
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.result_notes import SIMULATED_NOTE, write_honesty_notes, write_replay_notes
from agentsys.analysis.tables.results_document import Report, arrange_sheets, group_facts, write_fact_notes
from agentsys.base.grouping import format_count, group_by, join_names
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases, describe_repeated
from agentsys.records.case_row import NO_ATTACK, SERVED, CaseRow, is_simulated_name
from agentsys.records.published_facts import list_suite_sizes
from agentsys.records.stored_plan import describe_unfinished


def measure_reading(
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
    cells: rates.ScoredCells | None = None,
    brief: bool = False,
) -> Report:
    """Measure everything that was read, for other programs: without what only people are told beside it.

    A brief report (see `rates.measure`) is without what benchmarks measure besides, too.
    """
    cells = rates.group_scored_cells(reading.cases if cells is None else cells)
    rows = rates.measure(cells, errors, own=own, brief=brief)
    titles = rates.METRIC_TITLES | {metric.name: metric.title for metric in own}
    if any(row.metric == rates.NET_RESILIENCE for row in rows):
        titles |= {rates.NET_RESILIENCE: rates.NRP_TITLE}
    if brief:
        return Report(rows, titles=titles, is_brief=True)
    denials = find_paired_denials(cells, errors)
    return Report(
        rows,
        measured=rates.apply_verdicts(measure_facts(cells), cells.verdicts),
        denials=[replace(one, rows=tuple(rates.apply_verdicts(one.rows, cells.verdicts))) for one in denials],
        titles=titles,
    )


def build_report(
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
) -> Report:
    """The `numbers` of everything that was read, and everything a reader must know beside them."""
    cells = rates.group_scored_cells(reading.cases)
    found = measure_reading(reading, errors, own=own, cells=cells)
    return replace(
        found,
        unexposed=compute_unexposed_share(reading.cases),
        notes=tuple(write_report_notes(found, reading, cells, errors)),
        facts=group_facts(reading.cases),
    )


def write_report_notes(
    found: Report,
    reading: LoadedCases,
    cells: rates.ScoredCells,
    errors: ErrorRule,
) -> Iterator[str]:
    """All footnotes, the most important first; made one by one, as a screen shows a few of them."""
    yield from describe_repeated(reading.repeated_files)
    yield from describe_unfinished(reading.unfinished)
    yield from write_verdict_notes(found.rows, [rates.DEFENSE_QUALITY])
    yield from write_part_notes(cells)
    yield from write_errored_notes(reading.cases, errors)
    if any(is_simulated_name(row.model) for row in found.rows):
        yield SIMULATED_NOTE
    yield from write_replay_notes(reading.cases)
    for sheet in arrange_sheets(found.rows):
        for line in sheet.lines:
            metric = rates.BENIGN_UTILITY if line.attack == NO_ATTACK else rates.TARGETED_ASR
            suites = [suite for suite in sheet.suites if (metric, suite) in line.numbers]
            if suites and suites != sheet.suites:
                yield f"{sheet.title}: {line.name}: overall covers {', '.join(suites)} only."
    yield from write_honesty_notes(cells, errors)
    if found.is_brief:
        found = measure_reading(reading, errors, cells=cells)
    yield from write_fact_notes(found.measured, reading.cases)
    yield from write_denial_notes(found.denials)
    yield (
        f"{CONFIDENCE:.0f}% intervals: user tasks and injection tasks resampled, {REPLICATES} times. "
        "Overall: unweighted mean of the suites."
    )
    if any(row.suite == OVERALL and row.value in (0, 100) for row in found.rows):
        yield (
            "0 or 100 does not mean certainty: where all cases came out alike, the interval goes as far as it "
            "would for a single case that did not."
        )
    yield from _write_notes_on_suites_as_draws(reading.cases)
    if alone := sum(case.is_injection_task_alone for case in reading.cases):
        yield f"Left out: {format_count(alone, 'run')} of injection tasks as if a user had asked for them."
    if served := sum(case.benchmark == SERVED for case in reading.cases):
        yield f"Without scores: {format_count(served, 'conversation')} of a served agent with its clients."


def write_part_notes(cells: rates.ScoredCells) -> Iterator[str]:
    """Say of which part of AgentDojo an overall number is, where it is of a part alone."""
    named: dict[str, list[str]] = {}
    for cell, cases in cells.items():
        if cell.benchmark.partition("+")[0] == "agentdojo" and (part := _describe_part(cell, cases)):
            named.setdefault(part, []).append(f"{cell.model} / {cell.defense} / {cell.attack}")
    for part, names in named.items():
        yield f"Overall is of a part of AgentDojo: {part}: {'; '.join(names[:2])}{' and others' if names[2:] else ''}."


def _describe_part(cell: rates.MeasuredCell, cases: Sequence[CaseRow]) -> str:
    """E.g. `Travel, 11 of 20 user tasks`; empty where all of the benchmark's version is there."""
    sizes = list_suite_sizes(cell.version)
    by_suite = group_by(cases, attrgetter("suite"))
    if not by_suite.keys() <= sizes.keys():
        return ""  # a fork's
    parts, is_whole = [], by_suite.keys() == sizes.keys()
    for suite, found in sorted(by_suite.items()):
        users, size = set(map(attrgetter("user_task_id"), found)), sizes[suite]
        pairs = {pair for pair in set(map(attrgetter("user_task_id", "injection_task_id"), found)) if pair[1]}
        # Attacks without a goal run each user task once.
        most = len(size.user_tasks) * len(size.injection_tasks)
        of_pairs = bool(pairs) and len({task for _, task in pairs}) > 1
        if len(users) < len(size.user_tasks):
            parts.append(f"{suite.capitalize()}, {len(users)} of {len(size.user_tasks)} user tasks")
        elif of_pairs and len(pairs) < most:
            parts.append(f"{suite.capitalize()}, {len(pairs)} of {most} cases")
        else:
            parts.append(suite.capitalize())
            continue
        is_whole = False
    return "" if is_whole else "; ".join(parts)


def compute_unexposed_share(cases: Iterable[CaseRow]) -> dict[rates.MeasuredCell, float]:
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
        for cell, found in group_by(known, rates.MeasuredCell.of).items()
    }


_KINDS_BEFORE = {"cut_reply": "cut_reply, which is scored when it is run again"}
"""Error kinds of older records that are none any more."""


def write_errored_notes(cases: Sequence[CaseRow], rule: ErrorRule) -> Iterator[str]:
    """Say how many of some cases errored, why, and what they count as; nothing where none did."""
    errored = [case for case in cases if case.status == "error" and case.is_scored]
    if not errored:
        return
    kinds = Counter(
        _KINDS_BEFORE.get(case.error_kind or "", case.error_kind or "unknown") for case in errored
    )
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    if len({case.table_model for case in cases if case.is_scored}) > 1:
        listed += f"; of {join_names(case.table_model for case in errored)}"
    scored = sum(find_outcome(case, rule) is not None for case in errored)
    if rule is ErrorRule.REPORT:
        yield f"Errored cases are left out of the rates: {len(errored)} ({listed})."
    elif rule is ErrorRule.FAILED:
        yield (
            f"Errored cases: {len(errored)} ({listed}). They and all others that are undecided (docs/data.md#verdicts)"
            " are counted as user task failed, attack succeeded."
        )
    else:
        yield (
            f"Errored cases: {len(errored)} ({listed}); {scored} of them counted as AgentDojo does "
            f"(user task failed, attack succeeded), {len(errored) - scored} left out."
        )


def _write_notes_on_suites_as_draws(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Say where suites are drawn in the place of user tasks (`rate_estimates`)."""
    tasks: defaultdict[tuple[str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in cases:
        if case.is_scored:
            tasks[case.benchmark, case.version][case.suite].add(case.user_task_id)
    for (benchmark, version), suites in sorted(tasks.items()):
        if len(suites) > 1 and all(len(found) == 1 for found in suites.values()):
            yield (
                f"{benchmark} {version}: every suite has a single user task, so overall and pooled intervals "
                f"resample the {len(suites)} suites in their place."
            )


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
        found = split_by_tag(cases, load_tag(tag))
        listed = [Variant((tag,), found.cases_with), Variant((f"not {tag}",), found.cases_without)]
        if found.cases_undecided:
            listed.append(Variant((f"{tag} unknown",), found.cases_undecided))
        notes.append(found.note)
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


def build_variant_report(
    reading: LoadedCases,
    variants: Variants,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    own: Sequence[Metric] = (),
) -> Report:
    """A report whose lines are the variants of each defense, one below the other.

    Its footnotes speak of all cases and of official scores.
    """
    whole = build_report(reading, errors, own=own)
    # Rows of one defense stand together, the defenses in the order of the whole report.
    by_defense: dict[tuple[str, ...], list[rates.MetricRow]] = {
        cell: [] for cell in map(_get_defense_key, whole.rows)
    }
    unexposed = {}
    for variant in variants.listed:
        for row in rates.measure(variant.cases, errors, own=own):
            by_defense[_get_defense_key(row)].append(replace(row, defense=variant.name(row.defense)))
        for cell, share in compute_unexposed_share(variant.cases).items():
            unexposed[cell._replace(defense=variant.name(cell.defense))] = share
    rows = [row for found in by_defense.values() for row in found]
    return Report(
        rows, unexposed, (*variants.notes, *whole.notes), denials=whole.denials, titles=whole.titles
    )


def _get_defense_key(row: rates.MetricRow) -> tuple[str, ...]:
    return row.benchmark, row.version, row.model, row.defense
