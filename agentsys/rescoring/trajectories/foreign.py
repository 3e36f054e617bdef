"""`foreign_trajectory`: a record of AgentDojo's own runner, or of DRIFT's -> `Trajectory`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.records.case_row import NO_ATTACK
from agentsys.records.formats.drift import is_drift
from agentsys.records.unreadable import first_fault
from agentsys.rescoring.trajectories.conversation import conversation
from agentsys.rescoring.trajectories.trajectory import Trajectory
from agentsys.rescoring.trajectories.unusable import RecordFault, Unusable


class _Stored(BaseModel):
    """Keys that both forms have. Injected texts are absent from DRIFT's."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    suite_name: str
    pipeline_name: str
    user_task_id: str
    injection_task_id: str | None = None
    attack_type: str | None = None
    benchmark_version: str | None = None
    injections: dict[str, str] | None = None
    error: str | None = None
    utility: bool | None = None
    security: bool | None = None


def foreign_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """What a foreign record did.

    The answer is the whole last message in both forms: DRIFT, too, was judged on its thoughts and
    call section along with its final answer (docs/rescore.md#answers).

    Args:
        stored: The file's JSON object.
        source: The file's path.

    Raises:
        Unusable: If the run was not finished, or the file is not of this form.
    """
    record = _checked(stored)
    drift = is_drift(stored)
    if record.utility is None or (record.injection_task_id is not None and record.security is None):
        raise Unusable(RecordFault.UNFINISHED, "no scores in it")
    told = conversation(stored.get("conversations", stored.get("messages")), record.error)
    return Trajectory(
        source=source,
        form="drift" if drift else "agentdojo",
        benchmark="agentdojo",
        version=record.benchmark_version,
        pipeline=record.pipeline_name,
        suite=record.suite_name,
        user_task_id=record.user_task_id,
        injection_task_id=record.injection_task_id,
        attack=record.attack_type or NO_ATTACK,
        injections=None if drift and record.injection_task_id else record.injections or {},
        executed=told.ran,
        seen_by_checks=told.asked,
        answer=told.answer or (),
        prompt=told.prompt,
        tool_texts=told.tool_texts,
        utility=record.utility,
        security=record.security if record.injection_task_id is not None else None,
        error=record.error,
    )


def _checked(stored: Mapping[str, Any]) -> _Stored:
    try:
        return _Stored.model_validate(stored)
    except ValidationError as error:
        raise Unusable(RecordFault.UNREADABLE, first_fault(error)) from None
