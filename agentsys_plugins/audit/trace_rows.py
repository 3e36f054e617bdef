"""Tables of what stored runs show: a named tuple a line, its keys first, then counts of records.

A record is exposed where `agentsys.load_runs` says so: a tool returned a line of the injection, found as everywhere
(`agentsys.base.payload_lines`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from agentsys.analysis.metrics.task_tags import load_limits_of
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.base.grouping import Rows, count_rows
from agentsys.records.case_row import UNRECORDED
from agentsys_plugins.audit.rescoring.recorded_trajectory import Trajectory, is_denial_in_label

_AGENTDOJO = "agentdojo"

Trace = Mapping[str, Any]
"""What is kept of a record: its `case`, each of the case's fields, and what was found of it."""


class TraceCase(NamedTuple):
    """One record, named."""

    pipeline: str
    """Marked where the model was simulated, and where the benchmark is not AgentDojo."""
    suite: str
    """With the benchmark's name before it, where that is not AgentDojo: no two are ever counted together."""
    user_task_id: str
    injection_task_id: str | None
    attack: str
    source: str
    """Path of the file."""


def build_trace(trajectory: Trajectory, **found: Any) -> Trace:
    """Build the row of a record, named as in a report."""
    facts = {name: getattr(trajectory, name) for name in TraceCase._fields}
    other = "" if trajectory.benchmark == _AGENTDOJO else trajectory.benchmark
    facts |= {"pipeline": f"{trajectory.shown_pipeline}{other and f' on {other}'}"}
    case = TraceCase(**facts | {"suite": f"{other} {trajectory.suite}".lstrip()})
    return {"case": case, **case._asdict(), **found}


class BenignHit(NamedTuple):
    """A benign record that satisfies an attack's check although nothing was injected."""

    trace: TraceCase
    satisfied: str
    """The injection task whose check passes."""


def read_attacked_trace(trajectory: Trajectory) -> Trace:
    """Take from an attacked record what is kept of it; `success` and `solved` are the file's, errored or not."""
    limits = load_limits_of(trajectory.benchmark, trajectory.version or UNRECORDED)
    destroyed = {} if limits is None else limits.destroyed_by_injection
    return build_trace(
        trajectory,
        success=bool(trajectory.security),
        errored=trajectory.error is not None,
        exposed=trajectory.exposed_raw,
        targeted=not is_denial_in_label(trajectory.attack),
        solved=trajectory.utility,
        destroyed=trajectory.user_task_id in destroyed.get(trajectory.suite, ()),
    )


def build_exposure_rows(traces: Sequence[Trace]) -> Rows:
    """Attacked records by suite, then by user task, over all pipelines and attacks.

    `cases` are those whose injections and messages are known, errored ones included: they were shown what they
    were shown. `exposed`: a tool returned at least one line of an injection. `unknown`: the file does not tell.
    """
    rows = count_rows(
        [one for trace in traces for one in ({**trace, "user_task_id": None}, trace)],
        ("suite", "user_task_id"),
        cases=lambda trace: trace["exposed"] is not None,
        exposed=itemgetter("exposed"),
        unknown=lambda trace: trace["exposed"] is None,
    )

    def make_sort_key(row: Any) -> tuple[bool, str, int]:
        digits = (row.user_task_id or "").rsplit("_", 1)[-1]
        return row.user_task_id is not None, row.suite, int(digits) if digits.isdecimal() else -1

    return tuple(sorted(rows, key=make_sort_key))


class AsrRow(NamedTuple):
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


def build_asr_rows(traces: Iterable[Trace]) -> tuple[AsrRow, ...]:
    """Per pipeline and targeted attack: each suite, then their mean."""
    counted = [trace for trace in traces if trace["targeted"] and not trace["errored"]]
    suites = [AsrRow._make([*row, *_divide(row)]) for row in _count_successes(counted)]
    rows: list[AsrRow] = []
    for total in _count_successes({**trace, "suite": OVERALL} for trace in counted):
        own = [row for row in suites if row[:2] == total[:2]]
        shares = ([row.asr for row in own], [row.asr_exposed for row in own])
        means = [sum(each) / len(each) for each in shares]
        rows += [*own, AsrRow._make([*total, *means])]
    return tuple(rows)


def _count_successes(traces: Iterable[Trace]) -> list[Any]:
    rows = count_rows(
        traces,
        ("pipeline", "attack", "suite"),
        "cases",
        successes=itemgetter("success"),
        exposed_cases=itemgetter("exposed"),
        exposed_successes=lambda trace: trace["exposed"] and trace["success"],
    )
    return sorted(rows)


def _divide(row: Any) -> tuple[float, float]:
    among = row.exposed_successes / row.exposed_cases if row.exposed_cases else float("nan")
    return row.successes / row.cases, among
