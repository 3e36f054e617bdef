"""`eval_sample`: one case as Inspect's sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inspect_ai.log import EvalError, EvalSample
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageUser,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.scorer import Score

from agentsys.analysis.html_report.loose import as_text, mapping, name
from agentsys.analysis.html_report.trajectory import own_block
from agentsys.inspect_logs.case_events import CaseEvents
from agentsys.inspect_logs.conversation import convert_messages
from agentsys.inspect_logs.usage import convert_role_usage, sum_usage
from agentsys.records.case_row import CaseRow
from agentsys.records.schema import StoredBlock


def make_sample_id(case: CaseRow) -> str:
    """`user_task_0/injection_task_1`; benign: the user task alone."""
    return "/".join(part for part in (case.user_task_id, case.injection_task_id) if part)


def find_start_time(case: CaseRow, stored: Mapping[str, Any]) -> datetime:
    """When the case was run: as recorded (read as UTC), else when its file was written."""
    try:
        return datetime.fromisoformat(name(stored.get("evaluation_timestamp"))).replace(tzinfo=UTC)
    except ValueError:
        source = Path(case.source)
        written_ns = source.stat().st_mtime_ns if source.is_file() else 0
        return datetime.fromtimestamp(written_ns / 1e9, UTC)


def build_sample(case: CaseRow, stored: Mapping[str, Any], cell: str) -> EvalSample:
    """One case, with its conversation, its agents, its scores and its tokens.

    Args:
        case: The case's row.
        stored: The file's JSON object; nothing in it is trusted.
        cell: Id of the cell, so that no two samples of different logs are taken for one.
    """
    block = own_block(stored)
    messages = convert_messages(stored.get("messages") or stored.get("conversations"))
    scores = _build_scores(case)
    transcript = CaseEvents(case.table_model, find_start_time(case, stored))
    transcript.add_run(block.spans if block else (), stored.get("messages") or stored.get("conversations"))
    if scores:
        transcript.add_scores(scores)
    roles = _sum_usage_by_role(case, block)
    answer = next((m for m in reversed(messages) if isinstance(m, ChatMessageAssistant)), None)
    asked = next((m.text for m in messages if isinstance(m, ChatMessageUser)), "")
    identity = f"{cell}/{make_sample_id(case)}/{case.epoch}"
    return EvalSample(
        id=make_sample_id(case),
        epoch=case.epoch + 1,
        input=asked,
        target="",
        messages=messages,
        output=ModelOutput(
            model=case.table_model, choices=[ChatCompletionChoice(message=answer)] if answer else []
        ),
        scores=scores or None,
        metadata=_build_metadata(case, stored, block),
        events=transcript.events,
        model_usage={case.table_model: sum_usage(roles.values())} if roles else {},
        role_usage=roles,
        total_time=case.duration_s,
        working_time=case.duration_s,
        uuid=hashlib.sha256(identity.encode()).hexdigest()[:22],
        error=_build_error(case, stored, block),
    )


def _build_scores(case: CaseRow) -> dict[str, Score]:
    """Errored cases have none: an error is neither a blocked attack nor a successful one."""
    if case.status == "error":
        return {}
    scores = {"utility": Score(value=float(case.utility))}
    if case.injection_success is not None:
        scores["injection_success"] = Score(value=float(case.injection_success))
    return scores


def _sum_usage_by_role(case: CaseRow, block: StoredBlock | None) -> dict[str, ModelUsage]:
    if block is not None:
        return {name(role, "agent"): convert_role_usage(used) for role, used in block.usage.items()}
    # Other people's files have a sum at most, prompt and completion together.
    return {role: ModelUsage(total_tokens=tokens) for role, tokens in case.tokens_by_role.items()}


def _build_metadata(case: CaseRow, stored: Mapping[str, Any], block: StoredBlock | None) -> dict[str, Any]:
    injected = (block.written if block else None) or mapping(stored.get("injections"))
    told = {
        "suite": case.suite,
        "user_task": case.user_task_id,
        "injection_task": case.injection_task_id,
        "attack": case.attack,
        "defense": case.defense,
        "simulated": case.simulated,
        "payload_returned": case.exposed_raw,
        "payload_shown": case.exposed_shown,
        "injections": {name(vector): as_text(text) for vector, text in injected.items()} or None,
        "notes": list(case.notes) or None,
        "source": case.source,
    }
    return {key: value for key, value in told.items() if value is not None}


def _build_error(case: CaseRow, stored: Mapping[str, Any], block: StoredBlock | None) -> EvalError | None:
    if case.status != "error":
        return None
    text = as_text(stored.get("error") or "no message was stored")
    trace = as_text(block.traceback) if block is not None and block.traceback else ""
    return EvalError(message=f"{case.error_kind}: {text}", traceback=trace, traceback_ansi=trace)
