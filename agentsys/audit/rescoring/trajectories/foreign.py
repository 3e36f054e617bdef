"""`agentdojo_trajectory`, `drift_trajectory`: other people's records -> `Trajectory`.

The answer is the whole last message in both forms: DRIFT, too, was judged on its thoughts and call section
along with its final answer (docs/rescore.md#answers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsys.audit.rescoring.tasks import takes_last_assistant
from agentsys.audit.rescoring.trajectories.conversation import ParsedMessages, parse_messages
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.records.case_row import NO_ATTACK
from agentsys.records.formats.agentdojo import AgentDojoRecord, parse_agentdojo_record, benchmark_of
from agentsys.records.formats.drift import DriftRecord, parse_drift_record
from agentsys.records.stored_file import Producer


def read_agentdojo_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what a record of AgentDojo's own runner did, from the JSON object of the file `source`.

    Raises:
        UnreadableRecord: If the run was not finished, or the file is not of this form.
        Unusable: If its messages or injections cannot be used.
    """
    record = parse_agentdojo_record(stored)
    told = parse_messages(record.messages, record.error, last_assistant=takes_last_assistant(_make_label(record)))
    texts = {vector: text for vector, text in record.injections.items() if isinstance(text, str)}
    if len(texts) < len(record.injections):
        raise Unusable(RecordFault.UNREADABLE, "injections: not all are texts")
    return _build_trajectory("agentdojo", record, told, source, texts, record.error)


def read_drift_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what a record of DRIFT's own driver did; it does not say what was injected.

    Raises:
        UnreadableRecord: If the run was not finished, or the file is not of this form.
        Unusable: If its messages cannot be used.
    """
    record = parse_drift_record(stored)
    told = parse_messages(record.messages, None, last_assistant=takes_last_assistant(_make_label(record)))
    return _build_trajectory("drift", record, told, source, None if record.injection_task_id else {}, None)


def _make_label(record: AgentDojoRecord | DriftRecord) -> str:
    return benchmark_of(record.suite_name)


def _build_trajectory(
    form: Producer,
    record: AgentDojoRecord | DriftRecord,
    told: ParsedMessages,
    source: str,
    injections: Mapping[str, str] | None,
    error: str | None,
) -> Trajectory:
    if record.injection_task_id is not None and record.security is None:
        raise Unusable(RecordFault.UNFINISHED, "no scores in it")
    return Trajectory(
        source=source,
        form=form,
        benchmark=_make_label(record),
        version=record.benchmark_version,
        pipeline=record.pipeline_name,
        suite=record.suite_name,
        user_task_id=record.user_task_id,
        injection_task_id=record.injection_task_id,
        attack=record.attack_type or NO_ATTACK,
        injections=injections,
        executed=told.executed_calls,
        seen_by_checks=told.requested_calls,
        answer=told.answer or (),
        prompt=told.prompt,
        tool_texts=told.tool_texts,
        utility=record.utility,
        security=record.security if record.injection_task_id is not None else None,
        error=error,
    )
