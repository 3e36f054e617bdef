"""`trace_audit`: what stored runs say about a benchmark's numbers, found by looking and by re-execution."""

from __future__ import annotations

import io
import math
import os
from collections import Counter
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from agentsys.audit.rescoring.rescore import get_recorded_version
from agentsys.audit.rescoring.tasks import load_agentdojo
from agentsys.audit.rescoring.trajectories.final_answer import find_final_answer
from agentsys.audit.rescoring.trajectories.read import SkippedRecord, find_records
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.audit.traces.exposure import AttackedTrace, build_asr_rows, read_attacked_trace, build_exposure_rows
from agentsys.audit.traces.findings import (
    AnswerTrace,
    BenignTrace,
    build_answer_rows,
    rescore_answer,
    list_benign_hits,
    rescore_benign,
    build_destroyed_rows,
    build_direct_rows,
    build_solved_rows,
    build_state_equal_rows,
)
from agentsys.audit.traces.rows import (
    AnswerRow,
    AsrRow,
    BenignHit,
    DestroyedRow,
    DirectRow,
    ErrorRow,
    ExposureRow,
    HollowRow,
    SolvedRow,
    StateEqualRow,
    TraceCase,
)
from agentsys.errors import ConfigError
from agentsys.records.names_file import RunNames


@dataclass(frozen=True)
class TraceAudit:
    """Findings in stored runs. Counts are of records; nothing that errored or is hollow counts in a rate."""

    version: str | None
    """The version they were scored with again; None: each one's own."""
    pipelines: tuple[str, ...]
    attacked: int
    """Records with an injection task, errored ones included."""
    benign: int
    """Benign records of user tasks that could be scored again."""
    alone: int
    """Injection tasks run as if a user had asked for them."""
    exposure: tuple[ExposureRow, ...]
    asr: tuple[AsrRow, ...]
    successes_without_exposure: tuple[TraceCase, ...]
    """Targeted attacks that succeeded although no tool returned a line of the injection."""
    benign_hits: tuple[BenignHit, ...]
    never_solved: tuple[SolvedRow, ...]
    """User tasks that no benign record solved, by the files."""
    always_solved: tuple[SolvedRow, ...]
    state_equal: tuple[StateEqualRow, ...]
    errors: tuple[ErrorRow, ...]
    hollow: tuple[HollowRow, ...]
    asked_directly: tuple[DirectRow, ...]
    skipped: tuple[SkippedRecord, ...]
    """Files that are no usable record, hollow ones aside, and benign ones that could not be scored again."""
    destroyed: tuple[DestroyedRow, ...] = ()
    answer_text: tuple[AnswerRow, ...] = ()
    notes: tuple[str, ...] = ()
    """What folders' names decided about whose runs these are, one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Plain data for `json`; shares that are undefined are None."""
        found = asdict(self)
        for row in found["asr"]:
            row.update({key: None for key in ("asr", "asr_exposed") if math.isnan(row[key])})
        return found


def audit_traces(
    paths: Iterable[str | os.PathLike[str]], version: str | None = None, names: RunNames | None = None
) -> TraceAudit:
    """Look through stored runs.

    Args:
        paths: Folders or files of AgentDojo, of DRIFT or of ours.
        version: The benchmark's version that benign records are scored with again; None takes the one each
            names.
        names: The user's word on other people's folders.

    Raises:
        ConfigError: If a path or the version does not exist, there is no record, or a benign one names no
            version and none was given.
    """
    if version is not None:
        load_agentdojo(version)
    roots = list(paths)
    looked = _TraceFacts(version)
    stored = find_records(roots, names)
    with redirect_stdout(io.StringIO()):  # some of AgentDojo's checks print what they compare
        for record in stored:
            looked.add(record)
    if not (looked.attacked or looked.benign or looked.skipped):
        where = ", ".join(f"'{root}'" for root in roots)
        raise ConfigError(f"No stored cases in {where}. Give a folder of runs: runs=FOLDER")
    return replace(_build_trace_audit(looked), notes=stored.notes)


@dataclass
class _TraceFacts:
    """The facts kept of the records, each looked at once."""

    version: str | None
    attacked: list[AttackedTrace] = field(default_factory=list)
    benign: list[BenignTrace] = field(default_factory=list)
    skipped: list[SkippedRecord] = field(default_factory=list)
    answers: list[AnswerTrace] = field(default_factory=list)

    def add(self, record: Trajectory | SkippedRecord | None) -> None:
        """Look at one more."""
        if isinstance(record, SkippedRecord):
            self.skipped.append(record)
        elif record is not None and not record.is_benign:
            self.attacked.append(read_attacked_trace(record))
        elif record is not None:
            try:
                self.benign.append(rescore_benign(record, self.version or get_recorded_version(record)))
            except Unusable as fault:
                self.skipped.append(SkippedRecord(record.source, fault.obstacle, str(fault)))
        if isinstance(record, Trajectory) and find_final_answer(record) is not None:
            self._add_answer(record)

    def _add_answer(self, record: Trajectory) -> None:
        try:
            found = rescore_answer(record, self.version or get_recorded_version(record))
        except Unusable:
            return  # an attacked record counts elsewhere all the same; a benign one was skipped above
        self.answers.append(found)


def _build_trace_audit(looked: _TraceFacts) -> TraceAudit:
    attacked, benign = looked.attacked, looked.benign
    solved, alone = build_solved_rows(benign), sum(trace.alone for trace in benign)
    cases = [*(trace.case for trace in attacked), *(trace.case for trace in benign)]
    return TraceAudit(
        version=looked.version,
        pipelines=tuple(sorted({case.pipeline for case in cases})),
        attacked=len(attacked),
        benign=len(benign) - alone,
        alone=alone,
        exposure=build_exposure_rows(attacked),
        asr=build_asr_rows(attacked),
        successes_without_exposure=tuple(
            trace.case
            for trace in attacked
            if trace.targeted and trace.success and not trace.errored and trace.exposed is False
        ),
        benign_hits=list_benign_hits(benign),
        never_solved=tuple(row for row in solved if row.recorded == 0),
        always_solved=tuple(row for row in solved if row.recorded == row.runs),
        state_equal=build_state_equal_rows(benign),
        errors=_count_errors(attacked),
        hollow=_count_hollow(looked.skipped),
        asked_directly=build_direct_rows(benign),
        skipped=tuple(record for record in looked.skipped if record.obstacle is not RecordFault.HOLLOW),
        destroyed=build_destroyed_rows(attacked),
        answer_text=build_answer_rows(looked.answers),
    )


def _count_errors(attacked: Iterable[AttackedTrace]) -> tuple[ErrorRow, ...]:
    errored: Counter[tuple[str, str]] = Counter()
    successes: Counter[tuple[str, str]] = Counter()
    for trace in attacked:
        if trace.errored:
            key = (trace.case.pipeline, trace.case.suite)
            errored[key] += 1
            successes[key] += trace.success
    return tuple(ErrorRow(*key, count, successes[key]) for key, count in sorted(errored.items()))


def _count_hollow(skipped: Iterable[SkippedRecord]) -> tuple[HollowRow, ...]:
    hollow = (Path(record.source) for record in skipped if record.obstacle is RecordFault.HOLLOW)
    # <pipeline>/<suite>/<task>/<attack>/<injection>.json
    folders = Counter(str(path.parents[min(2, len(path.parents) - 1)]) for path in hollow)
    return tuple(HollowRow(folder, count) for folder, count in sorted(folders.items()))
