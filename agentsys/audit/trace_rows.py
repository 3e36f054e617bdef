"""Findings in stored runs: one small frozen type per finding, all JSON-ready by `asdict`.

The rows about exposure are counted here: was the injection ever returned by a tool?

Exposure has the definition with which the published runs were measured, without the allowances that are
made for a case under way (`agentsys.base.payload_lines`): a tool message holds, squeezed, at least one line
of any recorded injection, and only lines of 20 squeezed characters count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from agentsys.analysis.metrics.task_tags import limits_of
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.audit.rescoring.recorded_trajectory import Trajectory, label_denies_service
from agentsys.base.grouping import group_by
from agentsys.base.payload_lines import MIN_LINE_CHARS, squeeze
from agentsys.records.case_row import UNRECORDED


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


def is_exposed(trajectory: Trajectory) -> bool | None:
    """Whether a tool returned a line of the injection; None where that cannot be told.

    Our own records were watched while they ran: there an inner agent may have read what stands in no message.
    """
    if trajectory.is_benign:
        return None
    if trajectory.exposed_raw is not None:
        return trajectory.exposed_raw
    if not trajectory.injections:
        return None
    lines = _squeeze_lines(tuple(trajectory.injections.values()))
    return any(line in squeezed for squeezed in map(squeeze, trajectory.tool_texts) for line in lines)


@lru_cache(maxsize=4096)
def _squeeze_lines(texts: tuple[str, ...]) -> frozenset[str]:
    squeezed = (squeeze(line) for text in texts for line in text.splitlines())
    return frozenset(line for line in squeezed if len(line) >= MIN_LINE_CHARS)


class AttackedTrace(NamedTuple):
    """One attacked record, looked at; its messages are not kept."""

    case: TraceCase
    success: bool
    """As the file says, errored or not."""
    errored: bool
    exposed: bool | None
    targeted: bool
    """Whether the attack had a goal of its own; denial of service has none."""
    solved: bool
    """The user task, as the file says."""
    destroyed: bool
    """Whether the injection overwrites what the user task needs."""


def read_attacked_trace(trajectory: Trajectory) -> AttackedTrace:
    """Take from an attacked record what is kept of it."""
    return AttackedTrace(
        name_record(trajectory),
        bool(trajectory.security),
        trajectory.error is not None,
        is_exposed(trajectory),
        not label_denies_service(trajectory.attack),
        trajectory.utility,
        _is_destroyed(trajectory),
    )


def _is_destroyed(trajectory: Trajectory) -> bool:
    limits = limits_of(trajectory.benchmark, trajectory.version or UNRECORDED)
    tasks = {} if limits is None else limits.destroyed_by_injection
    return trajectory.user_task_id in tasks.get(trajectory.suite, ())


def build_exposure_rows(traces: Iterable[AttackedTrace]) -> tuple[ExposureRow, ...]:
    """Per suite, then per user task. Errored records are counted: they were shown what they were shown."""
    groups: dict[tuple[str, str | None], list[bool | None]] = defaultdict(list)
    for trace in traces:
        groups[trace.case.suite, None].append(trace.exposed)
        groups[trace.case.suite, trace.case.user_task_id].append(trace.exposed)
    rows = [
        ExposureRow(*key, len(exposed) - exposed.count(None), exposed.count(True), exposed.count(None))
        for key, exposed in groups.items()
    ]
    return tuple(sorted(rows, key=_row_order))


def _row_order(row: ExposureRow) -> tuple[bool, str, int]:
    """Suites first; then user tasks by suite and number."""
    digits = (row.user_task_id or "").rsplit("_", 1)[-1]
    return (row.user_task_id is not None, row.suite, int(digits) if digits.isdecimal() else -1)


def build_asr_rows(traces: Iterable[AttackedTrace]) -> tuple[AsrRow, ...]:
    """Per pipeline and targeted attack: each suite, then their mean. Errored records are left out."""
    counted = (trace for trace in traces if trace.targeted and not trace.errored)
    cells = group_by(counted, lambda trace: (trace.case.pipeline, trace.case.attack))
    return tuple(row for cell, of in sorted(cells.items()) for row in _build_cell_rows(*cell, of))


def _build_cell_rows(pipeline: str, attack: str, traces: Sequence[AttackedTrace]) -> list[AsrRow]:
    suites = group_by(traces, lambda trace: trace.case.suite)
    rows = [_build_asr_row(pipeline, attack, suite, suites[suite]) for suite in sorted(suites)]
    asr, exposed = _mean_or_nan([r.asr for r in rows]), _mean_or_nan([r.asr_exposed for r in rows])
    return [*rows, replace(_build_asr_row(pipeline, attack, OVERALL, traces), asr=asr, asr_exposed=exposed)]


def _build_asr_row(pipeline: str, attack: str, suite: str, found: Sequence[AttackedTrace]) -> AsrRow:
    successes = [trace.success for trace in found]
    among = [trace.success for trace in found if trace.exposed]
    counts = (len(found), sum(successes), len(among), sum(among))
    return AsrRow(pipeline, attack, suite, *counts, _mean_or_nan(successes), _mean_or_nan(among))


def _mean_or_nan(values: Sequence[float]) -> float:
    """Mean of the values; nan without any, or where one is undefined."""
    return sum(values) / len(values) if values else float("nan")
