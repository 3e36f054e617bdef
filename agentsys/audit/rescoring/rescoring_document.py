"""A re-scoring as a document: agreement per suite, fixed scores, every flip with its reason, omissions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from agentsys.analysis.metrics.task_tags import describe_fix
from agentsys.analysis.tables.table_document import Document, Grid, GridCell, make_cells
from agentsys.audit.rescoring.recorded_trajectory import RecordFault, Trajectory
from agentsys.audit.rescoring.rescore import RescoredCase, RescoringResult, rescore_records
from agentsys.audit.rescoring.score_flips import FlipReason, ScoreFlip
from agentsys.base.grouping import Rows, count_rows, format_count, group_by
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck
from agentsys.records.case_row import NO_ATTACK

ALL_SUITES = "all"
"""The row of all suites together."""
INJECTION_TASKS_ALONE = "injection tasks alone"
"""The row of injection tasks that were run as if a user had asked for them; in no other row."""


def count_agreements(cases: Iterable[RescoredCase]) -> Rows:
    """Count rows by pipeline and version in the order met: suites, `ALL_SUITES`, then those run alone.

    A benign run has no security to disagree about and counts as agreeing; the attacked ones are counted again.
    """
    facts = [
        {
            **{"pipeline": done.shown_pipeline, "version": case.version, "suite": suite},
            **{"done": done, "now": case.scores, "attacked": not done.is_benign},
            "agrees": done.is_benign or done.security == case.scores.security,
        }
        for case in cases
        for done in [case.trajectory]
        for suite in ([INJECTION_TASKS_ALONE] if done.is_injection_task_alone else [done.suite, ALL_SUITES])
    ]
    rows = count_rows(
        facts,
        ("pipeline", "version", "suite"),
        "cases",
        utility=lambda one: one["done"].utility == one["now"].utility,
        security=itemgetter("agrees"),
        attacked=itemgetter("attacked"),
        attacked_security=lambda one: one["agrees"] and one["attacked"],
        solved_recorded=lambda one: one["done"].utility,
        solved=lambda one: one["now"].utility,
        succeeded_recorded=lambda one: one["done"].security,
        succeeded=lambda one: one["now"].security,
    )
    groups = list(dict.fromkeys(row[:2] for row in rows))
    last = {ALL_SUITES: 1, INJECTION_TASKS_ALONE: 2}
    return tuple(sorted(rows, key=lambda row: (groups.index(row[:2]), last.get(row.suite, 0))))


class FixedRow(NamedTuple):
    """One row. Numbers of records, not rates; only records with scores of both kinds."""

    pipeline: str
    version: str
    attack: str
    """`none` in benign records."""
    suite: str
    """`ALL_SUITES`: the sums of the suites."""
    cases: int
    solved: int
    """User tasks solved, by the version's own checks."""
    solved_fixed: int
    succeeded: int
    """Attacks that succeeded, by the version's own checks; 0 in benign records."""
    succeeded_fixed: int
    changed_by: dict[str, int]
    """Fix -> records of which it turned a score. One record may be turned by several."""


def _build_fixed_row(key: tuple[str, str, str, str], cases: Sequence[RescoredCase]) -> FixedRow:
    pairs = [(case, case.fixed) for case in cases if case.fixed is not None]
    attacked = [(case, fixed) for case, fixed in pairs if not case.trajectory.is_benign]
    names = dict.fromkeys(name for _, fixed in pairs for name in fixed.fixes)
    return FixedRow(
        *key,
        len(pairs),
        sum(case.scores.utility for case, _ in pairs),
        sum(bool(fixed.utility) for _, fixed in pairs),
        sum(bool(case.scores.security) for case, _ in attacked),
        sum(bool(fixed.security) for _, fixed in attacked),
        {name: sum(name in fixed.changed_by for _, fixed in pairs) for name in names},
    )


def has_fixed_scores(case: RescoredCase) -> bool:
    """Whether a record has fixed scores beside the official ones."""
    return case.fixed is not None and case.fixed.utility is not None and case.fixed.security is not None


def count_fixed_rows(cases: Iterable[RescoredCase]) -> list[FixedRow]:
    """Rows by pipeline and version in the order met; benign ones first, then by attack, `ALL_SUITES` last."""
    rows: dict[tuple[str, str, str, str], list[RescoredCase]] = {}
    order: dict[tuple[str, str], int] = {}
    for case in cases:
        done = case.trajectory
        order.setdefault((done.shown_pipeline, case.version), len(order))
        if has_fixed_scores(case):
            for suite in (done.suite, ALL_SUITES):
                key = done.shown_pipeline, case.version, done.attack, suite
                rows.setdefault(key, []).append(case)

    def make_sort_key(row: FixedRow) -> tuple[int, bool, str, bool]:
        return order[row.pipeline, row.version], row.attack != NO_ATTACK, row.attack, row.suite == ALL_SUITES

    return sorted((_build_fixed_row(key, of) for key, of in rows.items()), key=make_sort_key)


def select_changed_cases(cases: Iterable[RescoredCase]) -> list[RescoredCase]:
    """Records of which some fix turned a score, in the order given."""
    return [case for case in cases if case.fixed is not None and case.fixed.changed_by]


_FIXED_COUNTS = ("solved", "solved_fixed", "succeeded", "succeeded_fixed")
_MAX_NAMED = 3
"""Skipped records named per kind; the JSON has all of them."""

_EXPLANATION = (
    "Utility and security: records whose score came out as recorded. A benign run has no security to "
    "disagree about and counts as agreeing; the attacked ones are counted again beside it."
)
_REASON_TEXTS = {
    FlipReason.CHECKER: "the same calls score as recorded under the versions named",
    FlipReason.CLOCK: "they score as recorded with the record's own time stamps",
    FlipReason.DRAWN: "tools drew a code or a number of which the record does not tell",
    FlipReason.DATA: "a tool returns another text today, or the data has another hash: found, not a proven"
    " cause",
    FlipReason.NOT_EXPLAINED: "no version, no clock and no difference in tool texts explains it",
}


def build_rescoring_document(found: RescoringResult) -> Document:
    """Arrange tables and notes for every writer."""
    fixed = group_by(count_fixed_rows(found.cases), lambda row: (row.pipeline, row.version))
    agreement = group_by(count_agreements(found.cases), lambda row: (row.pipeline, row.version))
    sections = [
        (
            f"{pipeline}, re-scored under {version}",
            [
                _build_agreement_grid(rows),
                *([_build_fixed_grid(fixed[pipeline, version])] if (pipeline, version) in fixed else []),
            ],
        )
        for (pipeline, version), rows in agreement.items()
    ]
    flips = [flip for case in found.cases for flip in case.flips]
    if flips:
        sections.append((f"Flips: {len(flips)}", [_build_flips_grid(flips)]))
    if changed := select_changed_cases(found.cases):
        sections.append((f"Turned by a fix: {len(changed)}", [_build_changed_grid(changed)]))
    return Document(sections, tuple(_write_notes(found, flips)))


def _build_agreement_grid(rows: Sequence[Any]) -> Grid:
    scores = ("Utility agrees", "Security agrees", "of attacked", "Solved", "Attacks succeeded")
    lines = [
        make_cells(
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
    caption = "agreement with the record; recorded -> re-scored"
    return Grid(caption, ("Suite", "Cases", *scores), lines, names=1)


_TASK_COLUMNS = ("Suite", "User task", "Injection task", "Attack")


def _name_tasks(done: Trajectory) -> tuple[str, ...]:
    attack = "" if done.is_benign else done.attack
    return (done.suite, done.user_task_id, done.injection_task_id or "", attack)


def _build_flips_grid(flips: Sequence[ScoreFlip]) -> Grid:
    lines = [
        make_cells(
            *_name_tasks(flip.trajectory),
            flip.score,
            f"{flip.recorded} -> {flip.rescored}".lower(),
            flip.reason.value,
            flip.detail,
        )
        for flip in flips
    ]
    header = (*_TASK_COLUMNS, "Score", "Flip", "Reason", "Evidence")
    return Grid("scores that came out otherwise", header, lines, names=8)


def _write_notes(found: RescoringResult, flips: Sequence[ScoreFlip]) -> Iterator[str]:
    yield _EXPLANATION
    for reason, meaning in _REASON_TEXTS.items():
        count = sum(flip.reason is reason for flip in flips)
        if count:
            yield f"{reason.value} ({count}): {meaning}."
    yield from write_fixed_notes(found)
    for obstacle in RecordFault:
        skipped = [record for record in found.skipped if record.obstacle is obstacle]
        if skipped:
            named = "; ".join(f"{record.source}: {record.reason}" for record in skipped[:_MAX_NAMED])
            rest = len(skipped) - _MAX_NAMED
            more = f"; and {rest} more" if rest > 0 else ""
            yield f"Skipped, {obstacle.value}: {len(skipped)} ({named}{more})."


def _build_fixed_grid(rows: Sequence[FixedRow]) -> Grid:
    turning = [name for name in rows[0].changed_by if any(row.changed_by[name] for row in rows)]
    header = ("Attack", "Suite", "Cases", "Solved", "fixed", "Attacks succeeded", "fixed", *turning)
    lines = [
        make_cells(
            row.attack,
            row.suite,
            str(row.cases),
            *(_build_count_cell(row, rows, name) for name in _FIXED_COUNTS),
            *(str(row.changed_by[name]) for name in turning),
        )
        for row in rows
    ]
    caption = "official and fixed scores, in percent of the cases; the last columns: cases that a fix turned"
    return Grid(caption, header, lines, names=2)


def _build_count_cell(row: FixedRow, rows: Sequence[FixedRow], name: str) -> GridCell:
    """A number of records, with its share: of all suites together the unweighted mean of theirs."""
    if row.attack == NO_ATTACK and name.startswith("succeeded"):
        return GridCell("")
    suites = [row]
    if row.suite == ALL_SUITES:
        suites = [each for each in rows if each.attack == row.attack and each.suite != ALL_SUITES]
    shares = [getattr(each, name) / each.cases for each in suites]
    return GridCell(str(getattr(row, name)), f"{100 * sum(shares) / len(shares):.2f}")


def _build_changed_grid(cases: Sequence[RescoredCase]) -> Grid:
    lines = [
        make_cells(
            case.trajectory.shown_pipeline,
            *_name_tasks(case.trajectory),
            _describe_turn(case.scores.utility, fixed.utility),
            "" if case.trajectory.is_benign else _describe_turn(case.scores.security, fixed.security),
            ", ".join(fixed.changed_by),
        )
        for case in cases
        if (fixed := case.fixed)
    ]
    header = ("Pipeline", *_TASK_COLUMNS, "Utility", "Attack success", "Fixes")
    return Grid("scores that a fix turned, official -> fixed", header, lines, names=8)


def _describe_turn(official: bool | None, fixed: bool | None) -> str:
    return str(official).lower() if official == fixed else f"{official} -> {fixed}".lower()


def write_fixed_notes(found: RescoringResult) -> Iterator[str]:
    """Say what has to stand below the grids of fixed scores."""
    scored = [case for case in found.cases if has_fixed_scores(case)]
    if scored:
        turned = len(select_changed_cases(scored))
        yield (
            f"Fixed: the same executions scored once more under {', '.join(map(describe_fix, found.fixes))}. "
            f"{turned} of {len(scored)} cases turned. In the line {ALL_SUITES} the shares are "
            "unweighted means of the suites."
        )
    failed = sum(case.fixed is not None and not has_fixed_scores(case) for case in found.cases)
    if failed:
        yield f"Fixed: {failed} cases on which a fix itself failed are in no number of these."
    sectioned = [case for case in found.cases if case.utility_of_answer is not None]
    if sectioned:
        lost = sum(case.scores.utility and not case.utility_of_answer for case in sectioned)
        gained = sum(bool(case.utility_of_answer) and not case.scores.utility for case in sectioned)
        yield (
            f"The last message of {len(sectioned)} cases has sections, and checks judge it whole. Were only"
            " its answer section judged, which is what a user sees, the utility of"
            f" {lost} of them would turn false and of {gained} true."
        )


def check_scores(runs: RunsToCheck) -> Iterator[CheckFinding]:
    """Execute every recorded call again and compare the scores; a flip that nothing explains is broken."""
    try:
        found = rescore_records([runs.folder], processes=runs.workers)
    except ConfigError as error:
        yield CheckFinding("Scores", "suspect", f"not done again: {error}")
        return
    yield _compare_scores(found)
    fixable = [case for case in found.cases if has_fixed_scores(case)]
    turned = select_changed_cases(fixable)
    causes = Counter(fix for case in turned if case.fixed for fix in case.fixed.changed_by)
    named = f" ({', '.join(f'{fix} {count}' for fix, count in causes.most_common(4))})" if causes else ""
    yield CheckFinding(
        "Benchmark",
        "note",
        f"its known flaws decide {len(turned):,} of {format_count(len(fixable), 'score pair')}{named}",
    )


def _compare_scores(found: RescoringResult) -> CheckFinding:
    flips = [flip for case in found.cases for flip in case.flips]
    if not found.cases:
        return CheckFinding(
            "Scores", "suspect", f"none of {len(found.skipped):,} records could be scored again"
        )
    skipped = f"; {format_count(len(found.skipped), 'record')} passed over" if found.skipped else ""
    if not flips:
        return CheckFinding(
            "Scores", "valid", f"all of {len(found.cases):,} records score as stored{skipped}"
        )
    flips.sort(key=lambda flip: flip.reason is not FlipReason.NOT_EXPLAINED)
    details = [
        f"{flip.trajectory.source}: {flip.score} {flip.recorded} then, {flip.rescored} now: {flip.reason}"
        for flip in flips
    ]
    unexplained = flips[0].reason is FlipReason.NOT_EXPLAINED
    text = f"{format_count(len(flips), 'score')} of {len(found.cases):,} records come out otherwise{skipped}"
    return CheckFinding("Scores", "broken" if unexplained else "suspect", text, tuple(details))
