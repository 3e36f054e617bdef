"""`own_trajectory`: one of our own records -> `Trajectory`, inner agents' calls included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.audit.rescoring.tasks import takes_last_assistant
from agentsys.audit.rescoring.trajectories.conversation import ParsedMessages, parse_messages
from agentsys.audit.rescoring.trajectories.trajectory import RecordedCall, Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.benchmarks.scoring import select_scored_calls
from agentsys.models.trace import REFUSED_SPAN, Tracer
from agentsys.records.formats.agentsys import parse_stored_block
from agentsys.records.schema import StoredBlock


def read_own_trajectory(stored: Mapping[str, Any], source: str) -> Trajectory:
    """Read what one of our records did.

    The environment saw the calls of every run of the pipeline (AgentDojo makes up to three), checks
    only see those of the last.

    Raises:
        UnreadableRecord: If the file is not of this form.
        Unusable: If the run was not finished, or its spans or messages cannot be used.
    """
    block = parse_stored_block(stored)
    error = None if block.status == "ok" else block.error_kind or "unknown"
    case = block.case
    told = parse_messages(stored.get("messages"), error, last_assistant=takes_last_assistant(case.benchmark))
    return Trajectory(
        source=source,
        form="agentsys",
        benchmark=case.benchmark,
        version=case.version,
        pipeline=case.pipeline,
        suite=case.suite,
        user_task_id=case.user_task_id,
        injection_task_id=case.injection_task_id,
        attack=case.attack,
        injections=block.written,
        executed=_list_executed_calls(block.spans, told),
        seen_by_checks=_list_calls_for_checks(block, told),
        answer=told.answer or (),
        prompt=told.prompt,
        tool_texts=told.tool_texts,
        utility=block.utility,
        security=block.security if case.injection_task_id is not None else None,
        error=error,
        data_hash=block.versions.get("data"),
        clock=block.clock,
        drawn=block.drawn,
        simulated=block.simulated,
        exposed_raw=block.exposure.exposed_raw,
    )


def _list_executed_calls(spans: Sequence[Any], told: ParsedMessages) -> tuple[RecordedCall, ...]:
    if not spans:
        return told.executed_calls
    calls = [call for call, _ in _find_call_spans(spans)]
    if [(call.function, call.args) for call in calls] == [(call.function, call.args) for call in told.executed_calls]:
        return told.executed_calls  # the same calls, and these have texts
    return tuple(calls)


def _list_calls_for_checks(block: StoredBlock, told: ParsedMessages) -> tuple[RecordedCall, ...]:
    """By the rule of a case under way (agentsys.benchmarks.scoring)."""
    ran = _find_call_spans(block.spans)
    tracer = Tracer(
        attempt=block.scored_attempt,
        executed_calls=[(call.function, dict(call.args), None) for call, _ in ran],
        executed_attempts=[attempt for _, attempt in ran],
        refused_attempts=[attempt for _, attempt in _find_call_spans(block.spans, REFUSED_SPAN)],
    )
    asked = [FunctionCall(function=call.function, args=dict(call.args)) for call in told.requested_calls]
    return tuple(RecordedCall(call.function, call.args) for call in select_scored_calls(asked, tracer))


def _find_call_spans(spans: Sequence[Any], kind: str = "tool") -> list[tuple[RecordedCall, int]]:
    """Executed (`tool`) or refused calls, each with the run of the pipeline it belongs to."""
    found = []
    for span in spans:
        if span.get("kind") != kind:
            continue
        name, decision, attempt = span.get("name"), span.get("decision"), span.get("attempt")
        args = decision.get("args") if isinstance(decision, dict) else None
        if not isinstance(name, str) or not isinstance(args, dict) or not isinstance(attempt, int):
            raise Unusable(RecordFault.UNREADABLE, f"a span of kind {kind} has no name, arguments or attempt")
        found.append((RecordedCall(name, args), attempt))
    return found
