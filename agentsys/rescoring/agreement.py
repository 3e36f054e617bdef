"""`Agreement`: how many re-scored records say what was recorded, per pipeline, version and suite."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentsys.rescoring.rescore import RescoredCase

ALL = "all"
"""The row of all suites together."""
ALONE = "injection tasks alone"
"""The row of injection tasks that were run as if a user had asked for them; in no other row."""


@dataclass
class Agreement:
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


def agreements(cases: Iterable[RescoredCase]) -> list[Agreement]:
    """Rows by pipeline and version in the order met: suites, `ALL`, then `ALONE`."""
    rows: dict[tuple[str, str, str], Agreement] = {}
    for case in cases:
        done = case.trajectory
        for suite in [ALONE] if done.is_injection_task_alone else [done.suite, ALL]:
            key = (done.shown_pipeline, case.version, suite)
            rows.setdefault(key, Agreement(*key)).add(case)
    groups = {key[:2]: place for place, key in reversed(list(enumerate(rows)))}
    last = {ALL: 1, ALONE: 2}
    return sorted(rows.values(), key=lambda row: (groups[row.pipeline, row.version], last.get(row.suite, 0)))
