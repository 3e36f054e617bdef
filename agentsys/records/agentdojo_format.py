"""Reads AgentDojo's own JSON, old and new, and DRIFT's variant of it, into `CaseRow`s.

Folders are asked later (`agentsys.records.resolve_runs`). DRIFT's files come from its official repository and
from its port in AgentDyn: utility and security are as DRIFT recorded them, judged on its last message. The
injected texts are not recorded and its isolator cuts tool results before they are stored, so whether a case
was exposed is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from agentsys.base.payload_lines import PayloadLines, drop_own_words, find_payload_lines
from agentsys.records.case import (
    UnfinishedRecord,
    UnreadableRecord,
    describe_first_fault,
    note_unknown_fields,
)
from agentsys.records.case_row import IN_PIPELINE_NAME, NO_ATTACK, UNRECORDED
from agentsys.records.context_facts import (
    ContextFacts,
    collect_prompt_words,
    estimate_tokens,
    find_bound,
    join_content_text,
    measure_context,
    note_judged_thoughts,
)
from agentsys.records.pipeline_names import split_alone
from agentsys.records.published_facts import find_ground_truth_length
from agentsys.records.served_call_ids import TOOL, is_call_id

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


_AGENTDOJO_KEYS = AgentDojoRecord.model_fields.keys() | {
    "agentdojo_package_version",
    "evaluation_timestamp",
    RESCORED_KEY,
}
"""The first two are written by newer versions of AgentDojo, the last by `agentsys rescore`."""


_AGENTDYN = frozenset({"shopping", "github", "dailylife"})
"""Suites of AgentDyn, a fork that calls itself agentdojo; no version of AgentDojo has them."""


def find_benchmark_of_suite(suite: str) -> str:
    """The benchmark that a suite of AgentDojo's runner, or of a fork's, belongs to.

    Means over suites of both would be numbers of neither.
    """
    return "agentdyn" if suite in _AGENTDYN else "agentdojo"


_AGENTDYNS_VERSION = "v1.2.2"
"""What AgentDyn's own runner records. Its forks record others, or none, for the same one version."""


def _is_served(calls: Sequence[Any]) -> bool:
    """True if a served agent of ours answered, and not the model that the file names."""
    ids = [call.get("id") for call in calls if isinstance(call, dict)]
    return any(map(is_call_id, repeat(TOOL), ids))


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


UNSCORED = "unscored"
"""Error kind of a stranger's record without a score: the run of its case broke off."""

_RecordT = TypeVar("_RecordT", bound=AgentDojoRecord)


class _ParsedRecord(NamedTuple, Generic[_RecordT]):
    record: _RecordT
    is_scored: bool


def _parse_even_unscored(
    stored: Mapping[str, Any], parse: Callable[[Mapping[str, Any]], _RecordT]
) -> _ParsedRecord[_RecordT]:
    """A file, checked; one without scores as if these were False, which `is_scored` then says mean nothing."""
    try:
        return _ParsedRecord(parse(stored), is_scored=True)
    except UnfinishedRecord:
        return _ParsedRecord(parse({**stored, "utility": False, "security": False}), is_scored=False)


def build_agentdojo_columns(stored: Mapping[str, Any], source: str) -> dict[str, Any]:
    """One row, as the arguments of `CaseRow`, from a file that AgentDojo's own runner wrote.

    Raises:
        UnreadableRecord: As `parse_agentdojo_record` does.
    """
    record, is_scored = _parse_even_unscored(stored, parse_agentdojo_record)
    attack = record.attack_type or NO_ATTACK
    shared = _make_shared_columns(record, stored, source, _AGENTDOJO_KEYS)
    lines = () if attack == NO_ATTACK else _find_lines(record)
    facts = measure_context(record.messages, lines)
    served = {"model": UNRECORDED} if _is_served(facts.made) else {}
    named = split_alone(record.pipeline_name)
    defense = named.defense if named.ending is None else IN_PIPELINE_NAME
    overflown = "context_length_exceeded" in (record.error or "")
    return dict(
        **shared | served,
        defense=UNRECORDED if served else defense,
        attack=attack,
        injection_success=None if attack == NO_ATTACK else record.security,
        status="ok" if record.error is None and is_scored else "error",
        # AgentDojo goes on after two kinds of error only and tells them apart in the message.
        error_kind=(None if is_scored else UNSCORED)
        if record.error is None
        else "context_length"
        if overflown
        else "server_error",
        **_make_context_columns(record.messages, facts),
        **_make_exposure_columns(facts, known=bool(lines and record.messages)),
    )


def _make_shared_columns(
    record: AgentDojoRecord, stored: Mapping[str, Any], source: str, known: Collection[str]
) -> dict[str, Any]:
    benchmark, version = find_benchmark_of_suite(record.suite_name), record.benchmark_version or UNRECORDED
    named = split_alone(record.pipeline_name)
    version = _AGENTDYNS_VERSION if benchmark == "agentdyn" else version
    return {
        "benchmark": benchmark,
        "version": version,
        "model": named.model if named.ending is None else record.pipeline_name,
        "suite": record.suite_name,
        "user_task_id": record.user_task_id,
        "injection_task_id": record.injection_task_id,
        "utility": record.utility,
        "duration_s": record.duration,
        "source": source,
        "notes": (*note_unknown_fields(stored.keys() - known), *note_judged_thoughts(record.messages)),
        "measured": parse_rescored_facts(stored),
        "ground_truth_length": find_ground_truth_length(version, record.suite_name, record.user_task_id),
    }


def _find_lines(record: AgentDojoRecord) -> PayloadLines:
    texts = (text for text in record.injections.values() if isinstance(text, str))
    return drop_own_words(find_payload_lines(texts), collect_prompt_words(record.messages))


def _make_exposure_columns(facts: ContextFacts, *, known: bool) -> dict[str, Any]:
    if not known:  # benign, or without the injected texts: whether it met one is unknown
        return {}
    is_exposed = facts.injection_round is not None
    return {
        "injection_round": facts.injection_round,
        "exposed_raw": is_exposed,
        "exposed_shown": is_exposed,
        "raw_round": facts.injection_round,
        "shown_round": facts.injection_round,
        "exposure_rounds": facts.rounds_exposed,
        "exposure_rounds_workers": 0,
    }


def _make_context_columns(messages: Sequence[Any], facts: ContextFacts) -> dict[str, Any]:
    if not messages:
        return {}
    return {
        "trajectory_length": facts.results,
        "calls": facts.calls,
        "answer_chars": facts.answer_chars,
        "proposed": max(facts.results, len(facts.made)),
        "ended": find_bound(messages),
        "untrusted_tokens": estimate_tokens(facts.result_chars),
        "untrusted_tokens_workers": 0,
    }


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
    """Read a re-scored record's facts for `CaseRow.measured`; empty if it has none or they are malformed."""
    note = stored.get(RESCORED_KEY)
    if not isinstance(note, Mapping) or not note.get("measured"):
        return {}
    try:
        return _RescoredFacts.model_validate(note["measured"]).model_dump(exclude_unset=True)
    except ValidationError:
        return {}  # The case then has no fixed scores; tables that show these print how many cases lack them.


_REFUSAL = "[CALL ERROR]"
"""The mark of a refusal, in a user message of DRIFT's own that follows the refused calls."""

_PARTS = ("build_constraints", "injection_isolation", "dynamic_validation")
"""Switches of the defense. All three on is DRIFT."""


class DriftRecord(AgentDojoRecord):
    """The keys of DRIFT's files that somebody here reads; `pipeline_name` is the model's name alone."""

    build_constraints: bool
    injection_isolation: bool
    dynamic_validation: bool
    adaptive_attack: bool = False
    messages: list[Any] = Field(validation_alias=AliasChoices("conversations", "messages"))
    security: bool
    total_tokens: int | None = None


_PLAN = {"tool_permission", "initial_trajectory", "initial_checklist"}
"""What else DRIFT keeps: its plan, which no column shows."""

_RESCORED = {"agentdojo_package_version", RESCORED_KEY}
"""What `agentsys rescore` adds, for AgentDojo's loader, besides `injections` and `error`."""

_DRIFT_KEYS = DriftRecord.model_fields.keys() | _PLAN | _RESCORED | {"conversations"}


def is_drift_record(stored: Mapping[str, Any]) -> bool:
    """True if this is a file of DRIFT's: it keeps its plan and switches beside AgentDojo's keys."""
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


def build_drift_columns(stored: Mapping[str, Any], source: str) -> dict[str, Any]:
    """One row, as the arguments of `CaseRow`, from a file that DRIFT's own driver wrote.

    Raises:
        UnreadableRecord: As `parse_drift_record` does.
    """
    record, is_scored = _parse_even_unscored(stored, parse_drift_record)
    attack = _label_attack(record)
    return dict(
        **_make_shared_columns(record, stored, source, _DRIFT_KEYS),
        defense=_label_defense(record),
        attack=attack,
        injection_success=None if attack == NO_ATTACK else record.security,
        status="ok" if is_scored else "error",
        error_kind=None if is_scored else UNSCORED,
        tokens_by_role={} if record.total_tokens is None else {"all": record.total_tokens},
        decisions={"denied": _count_refusals(record.messages)},
        **_make_context_columns(record.messages, measure_context(record.messages, ())),
    )


def _label_attack(record: DriftRecord) -> str:
    if record.attack_type in (None, NO_ATTACK):
        return NO_ATTACK
    return f"{record.attack_type}_adaptive" if record.adaptive_attack else str(record.attack_type)


def _label_defense(record: DriftRecord) -> str:
    """`drift`; with a part switched off, an ablation that must not be counted as DRIFT."""
    on = [part for part in _PARTS if getattr(record, part)]
    return "drift" if len(on) == len(_PARTS) else "_".join(["drift_with", *(on or ["nothing"])])


def _count_refusals(messages: Sequence[Any]) -> int:
    asked = (m for m in messages[1:] if isinstance(m, dict) and m.get("role") == "user")
    return sum(_REFUSAL in join_content_text(message.get("content")) for message in asked)
