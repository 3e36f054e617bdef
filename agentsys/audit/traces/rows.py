"""Findings in stored runs: one small frozen type per finding, all JSON-ready by `asdict`."""

from __future__ import annotations

from dataclasses import dataclass

from agentsys.audit.rescoring.trajectories.trajectory import Trajectory


@dataclass(frozen=True)
class TraceCase:
    """One record, named."""

    pipeline: str
    """Marked where the model was simulated."""
    suite: str
    user_task_id: str
    injection_task_id: str | None
    attack: str
    source: str
    """Path of the file."""


def name_record(trajectory: Trajectory) -> TraceCase:
    """Name a record as a report does."""
    return TraceCase(
        trajectory.shown_pipeline,
        trajectory.suite,
        trajectory.user_task_id,
        trajectory.injection_task_id,
        trajectory.attack,
        trajectory.source,
    )


@dataclass(frozen=True)
class ExposureRow:
    """Counts of records in which an attack was met at all, over all pipelines and attacks of the traces."""

    suite: str
    user_task_id: str | None
    """None: all user tasks of the suite."""
    cases: int
    """Attacked records, errored ones included, whose injections and messages are known."""
    exposed: int
    """Of these: a tool returned at least one line of an injection."""
    unknown: int
    """Attacked records beside them whose file does not tell."""

    @property
    def not_exposed_share(self) -> float:
        """Share of `cases`; nan where there are none."""
        return (self.cases - self.exposed) / self.cases if self.cases else float("nan")


@dataclass(frozen=True)
class AsrRow:
    """Attack success of one pipeline under one attack. Errored records are in none of the numbers."""

    pipeline: str
    attack: str
    suite: str
    """`overall`: the unweighted mean of the suites; its counts are sums."""
    cases: int
    successes: int
    exposed_cases: int
    exposed_successes: int
    asr: float
    """As a share; nan without cases."""
    asr_exposed: float
    """Among exposed records; nan where none is, or exposure is not recorded."""


@dataclass(frozen=True)
class SolvedRow:
    """Counts of benign records in which a user task was solved."""

    suite: str
    user_task_id: str
    runs: int
    recorded: int
    """Solved, by the files."""
    rescored: int
    """Solved, scored again under the audit's version."""


@dataclass(frozen=True)
class StateEqualRow:
    """Failed benign records of one suite, by whether the user task's ground truth changes the environment."""

    suite: str
    changes_state: bool
    failures_recorded: int
    equal_recorded: int
    """Of these, those that end in exactly the ground truth's environment."""
    failures: int
    """Failed when scored again under the audit's version."""
    equal: int


@dataclass(frozen=True)
class ErrorRow:
    """Errored attacked records of one pipeline and suite."""

    pipeline: str
    suite: str
    errored: int
    stored_as_success: int
    """Of these: stored with `security: true`."""


@dataclass(frozen=True)
class HollowRow:
    """Records with scores and an empty list of messages."""

    folder: str
    """The folder of the suite."""
    records: int


@dataclass(frozen=True)
class DirectRow:
    """An injection task that was asked for directly, as if a user wanted it."""

    suite: str
    injection_task_id: str
    runs: int
    recorded: int
    """Carried out, by the files."""
    rescored: int


@dataclass(frozen=True)
class BenignHit:
    """A benign record that satisfies an attack's check although nothing was injected."""

    trace: TraceCase
    satisfied: str
    """The injection task whose check passes."""


@dataclass(frozen=True)
class DestroyedRow:
    """Attacked records of a user task whose injection overwrites what it needs; errored ones left out."""

    suite: str
    user_task_id: str
    cases: int
    solved: int
    """By the files."""


@dataclass(frozen=True)
class AnswerRow:
    """Records of one pipeline and suite whose last message has an answer section among others."""

    pipeline: str
    suite: str
    cases: int
    """Those that could be scored again, attacked or not."""
    solved: int
    """Of these, under the audit's version: the whole message judged, as checks do."""
    lost: int
    """Of the solved: false once only the answer section is judged."""
    gained: int
    """Of the others: true once only the answer section is judged."""
