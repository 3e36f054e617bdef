"""AgentDojo's own JSON, old and new, -> `CaseRow`. Folders are asked later (`agentsys.records.settle`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.payload_lines import PayloadLines, find_payload_lines, drop_own_words
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.records.context_facts import estimate_tokens, collect_prompt_words, measure_context
from agentsys.records.known_length import find_ground_truth_length
from agentsys.records.published_name import parse_pipeline_name
from agentsys.records.unreadable import UnfinishedRecord, UnreadableRecord, describe_first_fault, note_unknown_fields

RESCORED_KEY = "rescored"
"""Key of a foreign record; its `measured` has the names that our own records use (docs/fixes.md)."""


class AgentDojoRecord(BaseModel):
    """The keys of AgentDojo's log that somebody here reads. It writes `utility` when a run has finished."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    suite_name: str
    pipeline_name: str
    user_task_id: str
    injection_task_id: str | None = None
    attack_type: str | None = None
    benchmark_version: str | None = None
    injections: dict[str, Any] = {}
    messages: list[Any]
    """Some published files hold scores and an empty list."""
    error: str | None = None
    utility: bool
    security: bool | None = None
    duration: float | None = None


_AGENTDOJO_KEYS = AgentDojoRecord.model_fields.keys() | {"agentdojo_package_version", "evaluation_timestamp", RESCORED_KEY}
"""The first two are written by newer versions of AgentDojo, the last by `agentsys rescore`."""


_AGENTDYN = frozenset({"shopping", "github", "dailylife"})
"""Suites of AgentDyn, a fork that calls itself agentdojo; no version of AgentDojo has them."""


def benchmark_of(suite: str) -> str:
    """The benchmark that a suite of AgentDojo's runner, or of a fork's, belongs to.

    Means over suites of both would be numbers of neither.
    """
    return "agentdyn" if suite in _AGENTDYN else "agentdojo"


def parse_agentdojo_record(stored: Mapping[str, Any]) -> AgentDojoRecord:
    """A file of AgentDojo's own runner, checked.

    Raises:
        UnfinishedRecord: If it has no scores.
        UnreadableRecord: If this is not AgentDojo's form.
    """
    if "messages" not in stored:
        raise UnreadableRecord("no `messages` in it: not a file of AgentDojo's own runner")
    if stored.get("utility") is None:
        raise UnfinishedRecord("no `utility` in it: the run was not finished")
    try:
        record = AgentDojoRecord.model_validate(stored)
    except ValidationError as error:
        raise UnreadableRecord(describe_first_fault(error)) from None
    if (record.attack_type or NO_ATTACK) != NO_ATTACK and record.security is None:
        raise UnfinishedRecord("no `security` in it: the run was not finished")
    return record


def build_agentdojo_row(stored: Mapping[str, Any], source: str) -> CaseRow:
    """One row from a file that AgentDojo's own runner wrote.

    Raises:
        UnreadableRecord: As `agentdojo_record` does.
    """
    record = parse_agentdojo_record(stored)
    victim = parse_pipeline_name(record.pipeline_name)
    attack = record.attack_type or NO_ATTACK
    return CaseRow(
        benchmark=benchmark_of(record.suite_name),
        version=record.benchmark_version or UNRECORDED,
        model=victim.model,
        defense=victim.defense,
        attack=attack,
        suite=record.suite_name,
        user_task_id=record.user_task_id,
        injection_task_id=record.injection_task_id,
        epoch=0,
        utility=record.utility,
        injection_success=None if attack == NO_ATTACK else record.security,
        status="ok" if record.error is None else "error",
        error_kind=None if record.error is None else _error_kind(record.error),
        simulated=False,
        duration_s=record.duration,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        source=source,
        foreign=True,
        notes=note_unknown_fields(stored.keys() - _AGENTDOJO_KEYS),
        measured=parse_rescored_facts(stored),
        ground_truth_length=find_ground_truth_length(
            record.benchmark_version or UNRECORDED, record.suite_name, record.user_task_id
        ),
        **_agentdojo_message_columns(record, benign=attack == NO_ATTACK),
    )


def _agentdojo_message_columns(record: AgentDojoRecord, *, benign: bool) -> dict[str, Any]:
    if not record.messages:
        return _unknown_exposure()
    lines = () if benign else drop_own_words(_injection_lines(record.injections), collect_prompt_words(record.messages))
    seen = measure_context(record.messages, lines)
    unknown = _unknown_exposure() if not lines else {}
    shown = seen.injection_round is not None
    return {
        "exposed_raw": shown,
        "exposed_shown": shown,
        "raw_round": seen.injection_round,
        "shown_round": seen.injection_round,
        "exposure_rounds": seen.rounds_exposed,
        "exposure_rounds_workers": 0,
        **unknown,
        "trajectory_length": seen.results,
        "injection_round": seen.injection_round,
        "calls": seen.calls,
        "answer_chars": seen.answer_chars,
        "untrusted_tokens": estimate_tokens(seen.result_chars),
        "untrusted_tokens_workers": 0,
    }


def _unknown_exposure() -> dict[str, Any]:
    """Benign cases, and files without messages or without the injected texts."""
    return dict.fromkeys(("exposed_raw", "exposed_shown", "raw_round", "shown_round", *_EXPOSURE_ROUNDS))


_EXPOSURE_ROUNDS = ("exposure_rounds", "exposure_rounds_workers")


def _injection_lines(injections: Mapping[str, Any]) -> PayloadLines:
    return find_payload_lines(text for text in injections.values() if isinstance(text, str))


def _error_kind(message: str) -> str:
    """AgentDojo goes on after two kinds of error only and tells them apart in the message."""
    return "context_length" if "context_length_exceeded" in message else "server_error"


class _RescoredFacts(BaseModel):
    """The facts. Whatever else stands there is nobody's."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    fixes: list[str]
    utility_fixed: bool | None
    security_fixed: bool | None
    changed_by: list[str] = []
    repeats: int | None = None
    utility_of_answer: bool | None = None


def parse_rescored_facts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for `CaseRow.measured`; empty where there are none, or not in this form."""
    note = stored.get(RESCORED_KEY)
    if not isinstance(note, Mapping) or not note.get("measured"):
        return {}
    try:
        return _RescoredFacts.model_validate(note["measured"]).model_dump(exclude_unset=True)
    except ValidationError:
        return {}  # without fixed scores, which is counted wherever they are asked for
