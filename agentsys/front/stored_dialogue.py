"""A conversation as a record beside those of runs: read by the report, counted in no rate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agentsys.front.agent import CLIENT_SUITE, Dialogue
from agentsys.models.chat import system, user
from agentsys.records.case import Case
from agentsys.records.case_row import NO_ATTACK, SERVED
from agentsys.records.schema import CaseRecord, is_simulated_id
from agentsys.runs.build_record import package_versions, make_span_storable, to_stored_span, sum_usage_by_role
from agentsys.runs.cell import Cell
from agentsys.runs.store import Store
from agentsys.storable import to_plain_data

DIALOGUE_VERSION = "1"
"""Version of what a served conversation is."""


def make_dialogue_writer(store: Store, cell: Cell) -> Any:
    """What stores each conversation of an agent, as it stands."""
    store.remember_config(cell.settings.config_hash, cell.settings.identity)

    def keep(dialogue: Dialogue) -> None:
        record = build_dialogue_record(dialogue, cell)
        store.write(record, build_agentdojo_form(dialogue, record))

    return keep


def build_dialogue_record(dialogue: Dialogue, cell: Cell) -> CaseRecord:
    """Our block of the stored JSON. A conversation has no scores: both are false and mean nothing."""
    calls = [call for span in dialogue.tracer.spans for call in span.calls]
    labels = cell.settings.labels
    usage = sum_usage_by_role(calls)
    return CaseRecord(
        case=Case(
            benchmark=SERVED,
            version=DIALOGUE_VERSION,
            suite=CLIENT_SUITE,
            user_task_id=dialogue.trace_id,
            injection_task_id=None,
            attack=NO_ATTACK,
            model=labels["model"],
            defense=labels["defense"],
        ),
        status="ok" if dialogue.error_kind is None else "error",
        error_kind=dialogue.error_kind,
        traceback=to_plain_data(dialogue.traceback),
        simulated=cell.stack.is_simulated or any(is_simulated_id(call.model_id) for call in calls),
        utility=False,
        security=False,
        usage=usage,
        spans=[to_stored_span(make_span_storable(span), scored=0) for span in dialogue.tracer.spans],
        seed=cell.settings.seed,
        versions=dict(package_versions()),
        config_hash=cell.settings.config_hash,
        asked={role: asked for role in usage if (asked := cell.stack.model_id(role))},
        notes=tuple(dict.fromkeys(to_plain_data(note) for call in calls for note in call.notes)),
    )


def build_agentdojo_form(dialogue: Dialogue, record: CaseRecord) -> Mapping[str, Any]:
    """The top level of the stored JSON, in AgentDojo's form."""
    asked = [system(""), *(user(said) for said in dialogue.requests)]
    return {
        "suite_name": record.case.suite,
        "pipeline_name": record.case.pipeline,
        "user_task_id": record.case.user_task_id,
        "injection_task_id": None,
        "attack_type": None,
        "injections": {},
        "messages": list(dialogue.messages or dialogue.tracer.last_main_messages or asked),
        "error": dialogue.error,
        "utility": False,
        "security": True,
        "duration": dialogue.duration_s,
        "evaluation_timestamp": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(dialogue.started)),
        "agentdojo_package_version": package_versions()["agentdojo"],
        "benchmark_version": DIALOGUE_VERSION,
    }
