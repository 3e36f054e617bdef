"""AgentDojo's own JSON, old and new, -> `CaseRow`. Folders are asked later (`agentsys.records.settle`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.payload_lines import PayloadLines, payload_lines, without_own_words
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.records.context_facts import estimated_tokens, own_words, trajectory
from agentsys.records.formats.rescored_facts import RESCORED, rescored_facts
from agentsys.records.known_length import known_length
from agentsys.records.published_name import victim_of
from agentsys.records.unknown_fields import unknown_fields_note
from agentsys.records.unreadable import UnreadableRecord, first_fault


class _Published(BaseModel):
    """The keys of AgentDojo's log that analysis needs. `utility` is written only when a run has finished."""

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


_KNOWN = _Published.model_fields.keys() | {"agentdojo_package_version", "evaluation_timestamp", RESCORED}
"""The first two are written by newer versions of AgentDojo, the last by `agentsys rescore`."""


_AGENTDYN = frozenset({"shopping", "github", "dailylife"})
"""Suites of AgentDyn, a fork that calls itself agentdojo; no version of AgentDojo has them."""


def benchmark_of(suite: str) -> str:
    """The benchmark that a suite of AgentDojo's runner, or of a fork's, belongs to.

    Means over suites of both would be numbers of neither.
    """
    return "agentdyn" if suite in _AGENTDYN else "agentdojo"


def published_row(stored: Mapping[str, Any], source: str) -> CaseRow:
    """One row from a file that AgentDojo's own runner wrote.

    Args:
        stored: The file's JSON object.
        source: The file's path.

    Raises:
        UnreadableRecord: If the run was not finished, or this is not AgentDojo's form.
    """
    record = _checked(stored)
    victim = victim_of(record.pipeline_name)
    attack = record.attack_type or NO_ATTACK
    if attack != NO_ATTACK and record.security is None:
        raise UnreadableRecord("no `security` in it: the run was not finished")
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
        notes=unknown_fields_note(stored.keys() - _KNOWN),
        measured=rescored_facts(stored),
        ground_truth_length=known_length(
            record.benchmark_version or UNRECORDED, record.suite_name, record.user_task_id
        ),
        **_of_messages(record, benign=attack == NO_ATTACK),
    )


def _of_messages(record: _Published, *, benign: bool) -> dict[str, Any]:
    if not record.messages:
        return _unexplored()
    lines = () if benign else without_own_words(_lines(record.injections), own_words(record.messages))
    seen = trajectory(record.messages, lines)
    unknown = _unexplored() if not lines else {}
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
        "untrusted_tokens": estimated_tokens(seen.result_chars),
        "untrusted_tokens_workers": 0,
    }


def _unexplored() -> dict[str, Any]:
    """Benign cases, and files without messages or without the injected texts."""
    return dict.fromkeys(("exposed_raw", "exposed_shown", "raw_round", "shown_round", *_EXPOSURE_ROUNDS))


_EXPOSURE_ROUNDS = ("exposure_rounds", "exposure_rounds_workers")


def _lines(injections: Mapping[str, Any]) -> PayloadLines:
    return payload_lines(text for text in injections.values() if isinstance(text, str))


def _checked(stored: Mapping[str, Any]) -> _Published:
    if "messages" not in stored:
        raise UnreadableRecord("no `messages` in it: not a file of AgentDojo's own runner")
    if "utility" not in stored:
        raise UnreadableRecord("no `utility` in it: the run was not finished")
    try:
        return _Published.model_validate(stored)
    except ValidationError as error:
        raise UnreadableRecord(first_fault(error)) from None


def _error_kind(message: str) -> str:
    """AgentDojo goes on after two kinds of error only and tells them apart in the message."""
    return "context_length" if "context_length_exceeded" in message else "server_error"
