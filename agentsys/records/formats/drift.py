"""DRIFT's own JSON (its official repository, and its port in AgentDyn) -> `CaseRow`.

Scores are DRIFT's: utility and security as it recorded them, judged on its last message. The injected
texts are not recorded and its isolator cuts tool results before they are stored, so whether a case was
exposed is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.records.context_facts import estimate_tokens, join_content_text, measure_context
from agentsys.records.formats.agentdojo import RESCORED_KEY, benchmark_of, parse_rescored_facts
from agentsys.records.known_length import find_ground_truth_length
from agentsys.records.published_name import parse_pipeline_name
from agentsys.records.unreadable import UnfinishedRecord, UnreadableRecord, describe_first_fault, note_unknown_fields

_REFUSAL = "[CALL ERROR]"
"""The mark of a refusal, in a user message of DRIFT's own that follows the refused calls."""

_PARTS = ("build_constraints", "injection_isolation", "dynamic_validation")
"""Switches of the defense. All three on is DRIFT."""


class DriftRecord(BaseModel):
    """The keys of DRIFT's files that somebody here reads."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    suite_name: str
    pipeline_name: str
    """The model's name alone."""
    user_task_id: str
    injection_task_id: str | None = None
    attack_type: str | None = None
    benchmark_version: str | None = None
    build_constraints: bool
    injection_isolation: bool
    dynamic_validation: bool
    adaptive_attack: bool = False
    messages: list[Any] = Field(validation_alias=AliasChoices("conversations", "messages"))
    utility: bool
    security: bool
    total_tokens: int | None = None
    duration: float | None = None


_PLAN = {"tool_permission", "initial_trajectory", "initial_checklist"}
"""What else DRIFT keeps: its plan, which no column shows."""

_RESCORED = {"injections", "error", "agentdojo_package_version", RESCORED_KEY}
"""What `agentsys rescore` adds, for AgentDojo's loader."""

_DRIFT_KEYS = DriftRecord.model_fields.keys() | _PLAN | _RESCORED | {"conversations"}


def is_drift_record(stored: Mapping[str, Any]) -> bool:
    """Whether this is a file of DRIFT's: it keeps its plan and switches beside AgentDojo's keys."""
    return "build_constraints" in stored and "tool_permission" in stored


def parse_drift_record(stored: Mapping[str, Any]) -> DriftRecord:
    """A file that DRIFT's own driver wrote, checked.

    Raises:
        UnfinishedRecord: If it has no scores.
        UnreadableRecord: If a key is missing or wrong.
    """
    if stored.get("utility") is None or stored.get("security") is None:
        raise UnfinishedRecord("no `utility` or no `security` in it: DRIFT's run was not finished")
    try:
        return DriftRecord.model_validate(stored)
    except ValidationError as error:
        raise UnreadableRecord(describe_first_fault(error)) from None


def build_drift_row(stored: Mapping[str, Any], source: str) -> CaseRow:
    """One row from a file that DRIFT's own driver wrote.

    Raises:
        UnreadableRecord: As `drift_record` does.
    """
    record = parse_drift_record(stored)
    attack = _attack_label(record)
    return CaseRow(
        benchmark=benchmark_of(record.suite_name),
        version=record.benchmark_version or UNRECORDED,
        model=parse_pipeline_name(record.pipeline_name).model,
        defense=_defense_label(record),
        attack=attack,
        suite=record.suite_name,
        user_task_id=record.user_task_id,
        injection_task_id=record.injection_task_id,
        epoch=0,
        utility=record.utility,
        injection_success=None if attack == NO_ATTACK else record.security,
        status="ok",
        error_kind=None,
        simulated=False,
        exposed_raw=None,
        exposed_shown=None,
        raw_round=None,
        shown_round=None,
        duration_s=record.duration,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        source=source,
        foreign=True,
        notes=note_unknown_fields(stored.keys() - _DRIFT_KEYS),
        measured=parse_rescored_facts(stored),
        tokens_by_role={} if record.total_tokens is None else {"all": record.total_tokens},
        decisions={"denied": _count_refusals(record.messages)},
        ground_truth_length=find_ground_truth_length(
            record.benchmark_version or UNRECORDED, record.suite_name, record.user_task_id
        ),
        **_drift_message_columns(record.messages),
    )


def _drift_message_columns(messages: Sequence[Any]) -> dict[str, Any]:
    if not messages:
        return {}
    seen = measure_context(messages, ())
    return {
        "trajectory_length": seen.results,
        "calls": seen.calls,
        "answer_chars": seen.answer_chars,
        "untrusted_tokens": estimate_tokens(seen.result_chars),
        "untrusted_tokens_workers": 0,
    }


def _attack_label(record: DriftRecord) -> str:
    if record.attack_type in (None, NO_ATTACK):
        return NO_ATTACK
    return f"{record.attack_type}_adaptive" if record.adaptive_attack else str(record.attack_type)


def _defense_label(record: DriftRecord) -> str:
    """`drift`; with a part switched off, an ablation that must not be counted as DRIFT."""
    on = [part for part in _PARTS if getattr(record, part)]
    return "drift" if len(on) == len(_PARTS) else "_".join(["drift_with", *(on or ["nothing"])])


def _count_refusals(messages: Sequence[Any]) -> int:
    """Batches of calls that were refused."""
    asked = (m for m in messages[1:] if isinstance(m, dict) and m.get("role") == "user")
    return sum(_REFUSAL in join_content_text(message.get("content")) for message in asked)
