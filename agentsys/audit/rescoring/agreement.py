"""`Agreement` and `FixedRow`: re-scored records beside what was recorded, and beside repaired checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from agentsys.audit.rescoring.rescore import RescoredCase
from agentsys.records.case_row import NO_ATTACK

ALL_SUITES = "all"
"""The row of all suites together."""
INJECTION_TASKS_ALONE = "injection tasks alone"
"""The row of injection tasks that were run as if a user had asked for them; in no other row."""


@dataclass
class AgreementRow:
    """One row. Numbers of records, not rates."""

    pipeline: str
    version: str
    """The version they were scored with now."""
    suite: str
    cases: int = 0
    utility: int = 0
    """Records whose utility came out as recorded."""
    security: int = 0
    """Records whose security came out as recorded. A benign run has none to disagree about and counts
    as agreeing."""
    attacked: int = 0
    attacked_security: int = 0
    """The same of the attacked records alone."""
    solved_recorded: int = 0
    solved: int = 0
    succeeded_recorded: int = 0
    """Attacked records whose injection task was carried out, as recorded."""
    succeeded: int = 0

    def add(self, case: RescoredCase) -> None:
        """Count one record."""
        done, now = case.trajectory, case.scores
        agrees = done.is_benign or done.security == now.security
        self.cases += 1
        self.utility += done.utility == now.utility
        self.security += agrees
        self.attacked += not done.is_benign
        self.attacked_security += agrees and not done.is_benign
        self.solved_recorded += done.utility
        self.solved += now.utility
        self.succeeded_recorded += bool(done.security)
        self.succeeded += bool(now.security)


def count_agreements(cases: Iterable[RescoredCase]) -> list[AgreementRow]:
    """Rows by pipeline and version in the order met: suites, `ALL`, then `ALONE`."""
    rows: dict[tuple[str, str, str], AgreementRow] = {}
    for case in cases:
        done = case.trajectory
        for suite in [INJECTION_TASKS_ALONE] if done.is_injection_task_alone else [done.suite, ALL_SUITES]:
            key = (done.shown_pipeline, case.version, suite)
            rows.setdefault(key, AgreementRow(*key)).add(case)
    groups = {key[:2]: place for place, key in reversed(list(enumerate(rows)))}
    last = {ALL_SUITES: 1, INJECTION_TASKS_ALONE: 2}
    return sorted(rows.values(), key=lambda row: (groups[row.pipeline, row.version], last.get(row.suite, 0)))


@dataclass
class FixedRow:
    """One row. Numbers of records, not rates; only records with scores of both kinds."""

    pipeline: str
    version: str
    attack: str
    """`none` in benign records."""
    suite: str
    """`ALL`: the sums of the suites."""
    cases: int = 0
    solved: int = 0
    """User tasks solved, by the version's own checks."""
    solved_fixed: int = 0
    succeeded: int = 0
    """Attacks that succeeded, by the version's own checks; 0 in benign records."""
    succeeded_fixed: int = 0
    changed_by: dict[str, int] = field(default_factory=dict)
    """Fix -> records of which it turned a score. One record may be turned by several."""

    def add(self, case: RescoredCase) -> None:
        """Count one record, of which `has_both` holds."""
        fixed = case.fixed
        assert fixed is not None
        attacked = not case.trajectory.is_benign
        self.cases += 1
        self.solved += case.scores.utility
        self.solved_fixed += bool(fixed.utility)
        self.succeeded += attacked and bool(case.scores.security)
        self.succeeded_fixed += attacked and bool(fixed.security)
        for name in fixed.fixes:
            self.changed_by[name] = self.changed_by.get(name, 0) + (name in fixed.changed_by)


def has_fixed_scores(case: RescoredCase) -> bool:
    """Whether a record has fixed scores beside the official ones."""
    return case.fixed is not None and case.fixed.utility is not None and case.fixed.security is not None


def count_fixed_rows(cases: Iterable[RescoredCase]) -> list[FixedRow]:
    """Rows by pipeline and version in the order met; benign ones first, then by attack, `ALL` last."""
    rows: dict[tuple[str, str, str, str], FixedRow] = {}
    order: dict[tuple[str, str], int] = {}
    for case in cases:
        done = case.trajectory
        order.setdefault((done.shown_pipeline, case.version), len(order))
        if has_fixed_scores(case):
            for suite in (done.suite, ALL_SUITES):
                key = (done.shown_pipeline, case.version, done.attack, suite)
                rows.setdefault(key, FixedRow(*key)).add(case)

    def place(row: FixedRow) -> tuple[int, bool, str, bool]:
        return order[row.pipeline, row.version], row.attack != NO_ATTACK, row.attack, row.suite == ALL_SUITES

    return sorted(rows.values(), key=place)


def select_changed_cases(cases: Iterable[RescoredCase]) -> list[RescoredCase]:
    """Records of which some fix turned a score, in the order given."""
    return [case for case in cases if case.fixed is not None and case.fixed.changed_by]
