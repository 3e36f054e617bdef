"""`check_scores`: whether stored scores come out again, and what the benchmark's own flaws decide among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentsys.audit.rescoring.rescore import RescoringResult, rescore_records
from agentsys.audit.rescoring.rescoring_document import has_fixed_scores, select_changed_cases
from agentsys.audit.rescoring.score_flips import FlipReason
from agentsys.base.grouping import format_count
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck


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
