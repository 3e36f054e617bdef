"""AgentDojo's own JSON, old and new, -> `CaseRow`. The one place where meaning is read out of a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.analysis.case_row import NO_ATTACK, UNRECORDED, CaseRow
from agentsys.analysis.ground_truth import known_length
from agentsys.analysis.reading_notes import unknown_fields_note
from agentsys.analysis.rescored_facts import RESCORED, rescored_facts
from agentsys.analysis.trajectory import estimated_tokens, own_words, trajectory
from agentsys.analysis.unreadable import UnreadableRecord, first_fault
from agentsys.payload_lines import PayloadLines, payload_lines, without_own_words

_DEFENSE_SUFFIXES = {
    "-tool_filter": "tool_filter",
    "-repeat_user_prompt": "prompt_sandwiching",
    "-spotlighting_with_delimiting": "spotlighting",
    "-transformers_pi_detector": "protectai",
    "-melon": "melon",
}
"""What agentdojo 0.1.35 (and MELON's fork of it) appends to a pipeline's name -> our name of the defense."""

_REPLACE_RESULTS = frozenset({"protectai", "melon"})
"""Defenses that put their own text in a tool result's place before it is stored: what the tool
returned is then known only where the payload got through."""


class Victim(NamedTuple):
    """What a published pipeline's name says."""

    model: str
    defense: str


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


def victim_of(pipeline_name: str) -> Victim:
    """Model and defense of a pipeline named by AgentDojo's convention.

    Args:
        pipeline_name: E.g. `gpt-4o-2024-05-13-tool_filter`.

    Returns:
        Model and our name of the defense; a suffix AgentDojo does not use stays in the model's name,
        and the defense is then `none`.
    """
    for suffix, defense in _DEFENSE_SUFFIXES.items():
        if pipeline_name.endswith(suffix) and pipeline_name != suffix:
            return Victim(pipeline_name.removesuffix(suffix), defense)
    return Victim(pipeline_name, "none")


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
        benchmark="agentdojo",
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
        **_of_messages(record, victim.defense, benign=attack == NO_ATTACK),
    )


def _of_messages(record: _Published, defense: str, *, benign: bool) -> dict[str, Any]:
    if not record.messages:
        return _unexplored()
    lines = () if benign else without_own_words(_lines(record.injections), own_words(record.messages))
    seen = trajectory(record.messages, lines)
    unknown = _unexplored() if not lines else {}
    shown = seen.injection_round is not None
    return {
        "exposed_raw": None if defense in _REPLACE_RESULTS and not shown else shown,
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
