"""A re-scoring as a document: agreement per suite, fixed scores, every flip with its reason, omissions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from agentsys.analysis.metrics.task_tags import describe_fix
from agentsys.analysis.tables.table_document import Document, Grid, GridCell, make_cells
from agentsys.base.grouping import Rows, count_rows, format_count, group_by, join_names
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck
from agentsys.records.case_row import NO_ATTACK
from agentsys.records.names_file import RunNames
from agentsys_plugins.audit.rescoring.recorded_trajectory import (
    RecordFault,
    Trajectory,
    is_agentdyn,
    load_agentdojo,
)
from agentsys_plugins.audit.rescoring.rescore import RescoredCase, RescoringResult, rescore_records
from agentsys_plugins.audit.rescoring.score_flips import REASONS_OF_CHECKS, FlipReason, ScoreFlip

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
    """True if a record has fixed scores beside the official ones."""
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
    FlipReason.SILENT_CHANGE: "they score as recorded under the check that AgentDojo replaced in this version",
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
    if any(flip.reason not in REASONS_OF_CHECKS for case in scored for flip in case.flips):
        yield (
            "Fixed: what executing again changes for no reason of a check counts as recorded, where no fix turned it."
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
    """Execute every recorded call again and compare the scores, pipeline by pipeline; see docs/bundles.md."""
    unnamed = runs.version or "inferred"
    try:
        found = rescore_records(
            [runs.folder],
            names=RunNames(runs.names),
            processes=runs.workers,
            unnamed=unnamed,
            remember=True,
        )
    except ConfigError as error:
        yield CheckFinding("Scores", "suspect", f"not done again: {error}")
        return
    by_pipeline = group_by(found.cases, lambda case: case.trajectory.shown_pipeline)
    for pipeline, cases in by_pipeline.items():
        yield _compare_scores(pipeline if len(by_pipeline) > 1 else "", cases, found)
        yield from _list_missing(pipeline, cases)
    if found.known:
        of = format_count(len(found.cases), "record")
        text = f"{found.known:,} of {of} are as an earlier check scored them, and were not scored again"
        yield CheckFinding("Scores", "note", text)
    used = [one for one in found.skipped if one.obstacle not in _IN_NO_NUMBER]
    if used or not found.cases:
        text = f"{format_count(len(used), 'record')} could not be scored again"
        yield CheckFinding("Scores", "suspect", text, tuple(f"{one.source}: {one.reason}" for one in used))
    fixable = [case for case in found.cases if has_fixed_scores(case)]
    turned = select_changed_cases(fixable)
    causes = Counter(fix for case in turned if case.fixed for fix in case.fixed.changed_by)
    named = f" ({', '.join(f'{fix} {count}' for fix, count in causes.most_common(4))})" if causes else ""
    yield CheckFinding(
        "Benchmark",
        "note",
        f"its known flaws decide {len(turned):,} of {format_count(len(fixable), 'score pair')}{named}",
    )


_IN_NO_NUMBER = (RecordFault.UNREADABLE, RecordFault.UNFINISHED, RecordFault.REPEATED, RecordFault.ERROR)
"""Records that no number uses, or that are told elsewhere on the page."""


def _compare_scores(pipeline: str, cases: Sequence[RescoredCase], found: RescoringResult) -> CheckFinding:
    counted = [case for case in cases if not case.trajectory.is_injection_task_alone] or cases
    flips = [flip for case in counted for flip in case.flips]
    of = f" ({pipeline})" if pipeline else ""
    explained = found.explained.get(cases[0].trajectory.pipeline)
    under = f" under {cases[0].version}, {_describe_versions(explained)}" if explained else ""
    if not flips:
        return CheckFinding("Scores", "valid", f"all of {len(counted):,} records score as stored{under}{of}")
    flips.sort(key=lambda flip: flip.reason is not FlipReason.NOT_EXPLAINED)
    details = [
        f"{flip.trajectory.source}: {flip.score} {flip.recorded} then, {flip.rescored} now: {flip.reason}"
        for flip in flips
    ]
    agreeing = sum(not case.flips for case in counted)
    text = (
        f"{format_count(len(flips), 'score')} of {len(counted):,} records come out otherwise;"
        f" {agreeing:,} of {len(counted):,} records score as stored{under}{of}"
    )
    # Where not even the version is known, what nobody explains may be a state of the package that nobody has.
    broken = any(flip.reason is FlipReason.NOT_EXPLAINED for flip in flips) and not explained
    return CheckFinding("Scores", "broken" if broken else "suspect", text, tuple(details))


def _describe_versions(explained: Counter[str]) -> str:
    """Say how many records each version explains, the best ones first."""
    listed = sorted(explained.items(), key=lambda one: -one[1])
    best = [name for name, count in listed if count == listed[0][1]]
    tie = f", as do {join_names(best[1:])}" if best[1:] else ""
    others = "; ".join(f"{name}: {count}" for name, count in listed if name not in best)
    return f"which explains most of what names no version{tie}" + (f" ({others})" if others else "")


def _list_missing(pipeline: str, cases: Sequence[RescoredCase]) -> Iterator[CheckFinding]:
    """Name the suites, tasks and pairs of the version that somebody else's pipeline lacks."""
    first = cases[0]
    if first.trajectory.form == "agentsys" or is_agentdyn(first.trajectory.benchmark):
        return
    done: dict[str, set[tuple[str, str, str | None]]] = {}
    for case in (one.trajectory for one in cases if not one.trajectory.is_injection_task_alone):
        key = case.suite, case.user_task_id, case.injection_task_id
        done.setdefault(case.attack, set()).add(key)
    bench = load_agentdojo(first.version)
    suites = {name: bench.suite(name) for name in bench.suite_names()}
    for attack, there in sorted(done.items()):
        pairs = [
            (name, user, attacked)
            for name, suite in suites.items()
            for user in suite.user_tasks
            for attacked in ([None] if attack == NO_ATTACK else suite.injection_tasks)
        ]
        gone = [key for key in pairs if key not in there]
        whole = [name for name in suites if not any(key[0] == name for key in there)]
        details = [f"{name}: the whole suite" for name in whole]
        details += [" ".join(filter(None, key)) for key in gone if key[0] not in whole]
        if gone:
            text = f"{pipeline}, {attack}: {len(gone):,} of {len(pairs):,} cases of {first.version} are not there"
            yield CheckFinding("Missing", "note", text, tuple(details))
