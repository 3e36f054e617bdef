"""The record of a case: our block, and the fields that AgentDojo's loader reads."""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.base.grouping import group_by
from agentsys.base.json_values import to_plain_data
from agentsys.benchmarks.agentdojo import hash_suite_data
from agentsys.contracts import Suite
from agentsys.models.chat import Usage, system, user
from agentsys.models.trace import ModelCall, Span, Tracer
from agentsys.records.schema import (
    AttemptFacts,
    CaseRecord,
    Receipt,
    RoleUsage,
    SearchFacts,
    StoredCall,
    StoredSpan,
    is_simulated_id,
)
from agentsys.runs.case_outcome import CaseEnd, CaseError, CaseOutcome, format_traceback, make_tracer
from agentsys.runs.cell import Job
from agentsys.runs.settings import read_code_versions

_MOST_TOKENS = 2**53
"""Per call; also the largest whole number that every JSON reader can represent."""


def build_record(
    outcome: CaseOutcome, attempt: AttemptFacts | None = None, search: SearchFacts | None = None
) -> CaseRecord:
    """Build our block of the stored JSON. Text that UTF-8 cannot encode (half a surrogate pair) is replaced.

    Args:
        outcome: The case's result.
        attempt: For an attempt of a search, its facts.
        search: If the attack's text was searched for, the facts of the search.
    """
    try:
        return _build_case_record(outcome, attempt, search)
    # From pydantic: text that is not valid Unicode, or arguments nested too deeply to be copied.
    except ValueError:
        attempt = attempt and AttemptFacts.model_validate(to_plain_data(attempt))
        search = search and SearchFacts.model_validate(to_plain_data(search))
        return _build_case_record(_make_storable(outcome), attempt, search)


def _build_case_record(
    run: CaseOutcome, attempt: AttemptFacts | None, search: SearchFacts | None
) -> CaseRecord:
    """Build our block; ValueError for text that cannot be stored."""
    cell, case = run.job.cell, run.job.case
    scored = max(run.attempts - 1, 0)
    calls = run.tracer.all_calls
    suite, usage = cell.benchmark.suite(case.suite), sum_usage_by_role(calls)
    data: dict[str, str] = {}
    with suppress(Exception):  # A foreign suite may raise anything, and a label must not cost the case.
        data = {"data": hash_suite_data(suite)}
    return CaseRecord(
        case=case,
        status="ok" if run.error is None else "error",
        error_kind=None if run.error is None else run.error.kind,
        traceback=None if run.error is None else run.error.traceback,
        simulated=cell.stack.is_simulated or any(is_simulated_id(call.model_id) for call in calls),
        utility=run.utility,
        security=run.security,
        scored_attempt=scored,
        judges_thoughts=run.judges_thoughts,
        exposure=run.watch.summarize(),
        usage=usage,
        spans=[to_stored_span(span, scored) for span in run.tracer.spans],
        noop=run.noop,
        ground_truth_length=count_ground_truth_calls(suite, case.user_task_id),
        seed=cell.settings.seed,
        injection_mode=cell.benchmark.injection,
        clock=cell.benchmark.clock,
        drawn=tuple(run.drawn),
        written=dict(run.written),
        shown_tools={
            role: [to_plain_data(tool.json_object) for tool in shown.values()]
            for role, shown in run.watch.shown_tools.items()
            if shown
        },
        versions={
            **{name: version.partition(" ")[0] for name, version in cell.settings.packages.items()},
            **read_code_versions(),
            "python": platform.python_version(),
            **data,
        },
        config_hash=cell.config_hash,
        asked={role: asked for role in usage if (asked := cell.stack.model_id(role))},
        measured=dict(run.measured),
        receipts=_list_receipts(run.tracer),
        facts=dict(cell.benchmark.facts),
        attempt=attempt,
        search=search,
        notes=tuple(
            dict.fromkeys([*cell.notes, *cell.stack.notes, *(note for call in calls for note in call.notes)])
        ),
    )


def build_case_end(outcome: CaseOutcome, search: SearchFacts | None = None) -> CaseEnd:
    """Build a finished case's record and AgentDojo's fields, and say if the run or its cell has to end."""
    record, fields, error = (
        build_record(outcome, search=search),
        build_agentdojo_fields(outcome),
        outcome.error,
    )
    ends_run, ends_cell = error is not None and error.ends_run, error is not None and error.ends_cell
    return CaseEnd(
        record, fields, fields["error"] if ends_run else None, fields["error"] if ends_cell else None
    )


def build_lost_case(job: Job, error: BaseException) -> CaseEnd:
    """Build an error record for a case whose own record could not be built or stored."""
    lost = CaseError("record", f"{type(error).__name__}: {error}", format_traceback(error))
    return build_case_end(
        CaseOutcome(job=job, tracer=make_tracer(job), error=lost, started=0.0, duration_s=0.0)
    )


def _list_receipts(tracer: Tracer) -> tuple[Receipt, ...] | None:
    """List the calls whose tool said that it ran; None if the tools say nothing."""
    if tracer.receipts is None:
        return None
    receipts = []
    for index in tracer.receipts:
        name, args, _ = tracer.executed_calls[index]
        digest = hashlib.sha256(json.dumps(args, sort_keys=True).encode()).hexdigest()[:16]
        receipts.append(Receipt(call=index, function=name, args=digest))
    return tuple(receipts)


def build_agentdojo_fields(run: CaseOutcome) -> dict[str, Any]:
    """Build the top level of the stored JSON: AgentDojo's own fields."""
    case = run.job.case
    # Of an errored case at least the latest context.
    messages = run.messages or (() if run.error is None else run.tracer.last_main_messages)
    task = run.job.cell.benchmark.suite(case.suite).user_tasks[case.user_task_id]
    return {
        "suite_name": case.suite,
        "pipeline_name": case.pipeline,
        "user_task_id": case.user_task_id,
        "injection_task_id": case.injection_task_id,
        "attack_type": None if case.injection_task_id is None else case.attack,
        "injections": dict(run.written),
        # AgentDojo's loader wants two messages, also for a case that reached no model.
        "messages": list(messages) if len(messages) > 1 else [system(""), user(task.PROMPT)],
        "error": run.error and run.error.message,
        "utility": run.utility,
        # AgentDojo marks every benign run as "secure"; ours follow, so that its own loader sees no change.
        "security": run.security if case.injection_task_id is not None else True,
        "duration": run.duration_s,
        "evaluation_timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started)),
        "agentdojo_package_version": read_code_versions()["agentdojo"],
        "benchmark_version": case.version,
    }


def _make_storable(run: CaseOutcome) -> CaseOutcome:
    """Replace everything that models, attacks and suites produced by data that can be stored."""
    spans, error = [make_span_storable(span) for span in run.tracer.spans], run.error
    if error is not None:
        texts = {"message": error.message, "traceback": error.traceback}
        error = replace(error, **to_plain_data(texts))
    return replace(
        run,
        tracer=replace(run.tracer, spans=spans),
        written=to_plain_data(run.written),
        measured=to_plain_data(run.measured),
        error=error,
    )


def make_span_storable(span: Span) -> Span:
    """Replace everything in a span that models, attacks and suites produced by data that can be stored."""
    calls = [
        replace(c, model_id=to_plain_data(c.model_id), notes=tuple(to_plain_data(c.notes)))
        for c in span.calls
    ]
    return replace(
        span,
        name=to_plain_data(span.name),
        messages=to_plain_data(span.messages),
        decision=to_plain_data(span.decision),
        calls=calls,
    )


def sum_usage_by_role(calls: Sequence[ModelCall]) -> dict[str, RoleUsage]:
    """Sum tokens, requests, cost (US dollars) and latency (seconds) per role; one unpriced call makes a cost None."""
    usage_of = {}
    for role, some in group_by(calls, lambda call: call.role).items():
        costs = [call.cost_usd for call in some]
        usage_of[role] = RoleUsage(
            calls=sum(call.error is None for call in some),
            requests=sum(0 if call.from_cache else call.attempts for call in some),
            cache_hits=sum(call.from_cache for call in some),
            cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
            latency_s=sum(call.latency_s for call in some),
            **vars(sum((_clip_usage(call.usage) for call in some), Usage())),
        )
    return usage_of


def _clip_usage(usage: Usage) -> Usage:
    """Clip token counts to _MOST_TOKENS; a larger one is a server's mistake."""
    return Usage(*(min(count, _MOST_TOKENS) for count in vars(usage).values()))


def to_stored_span(span: Span, scored: int) -> StoredSpan:
    """Convert a span for the record; `scored` is the pipeline run whose messages the record has at top level."""
    # Storing the scored run's messages a second time would double the file.
    messages: Sequence[ChatMessage] = () if span.kind == "run" and span.attempt == scored else span.messages
    calls = [vars(call) | vars(_clip_usage(call.usage)) for call in span.calls]
    fields = {
        "messages": [to_plain_message(message) for message in messages],
        "calls": [StoredCall(**{k: v for k, v in call.items() if k != "usage"}) for call in calls],
    }
    return StoredSpan(**{**vars(span), **fields})


def to_plain_message(message: ChatMessage) -> dict[str, Any]:
    """Copy a message, its tool calls as plain dicts."""
    plain: dict[str, Any] = dict(message)
    if plain.get("tool_calls"):
        plain["tool_calls"] = [_to_plain_call(call) for call in plain["tool_calls"]]
    if "tool_call" in plain:
        plain["tool_call"] = _to_plain_call(plain["tool_call"])
    return plain


def _to_plain_call(call: FunctionCall | dict[str, Any]) -> dict[str, Any]:
    return call if isinstance(call, dict) else call.model_dump()


@lru_cache(maxsize=4096)
def count_ground_truth_calls(suite: Suite, user_task_id: str) -> int | None:
    """Number of calls in a user task's ground truth on a clean environment; computed once per process.

    Returns:
        None if the ground truth cannot be computed: it is only a label, which must not cost the case.
    """
    task = suite.user_tasks[user_task_id]
    try:
        environment = task.init_environment(suite.load_and_inject_default_environment({}))
        return len(task.ground_truth(environment))
    except Exception:  # noqa: BLE001 - a suite from outside may raise anything here
        return None
