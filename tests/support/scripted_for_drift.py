"""A model with a reply for each of DRIFT's roles, and a short way to run the agent with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.types import ChatMessage
from noting_tools import Tools as Tools
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.trace import Span, Tracer, use_tracer
from baselines.drift.drift_agent import DriftAgent
from baselines.drift.drift_plan import DriftSettings, PermissionCache

QUERY = "Pay the bill in bill.txt."
STOP = "<function_call>[]</function_call><final_answer>Done.</final_answer>"


def plan(*names: str, checklist: object = None) -> str:
    """A planner's reply."""
    entries = checklist if checklist is not None else [entry(name) for name in names]
    text = entries if isinstance(entries, str) else json.dumps(entries)
    return (
        f"<function_trajectory>[{', '.join(names)}]</function_trajectory>"
        f"<parameter_checklist>{text}</parameter_checklist>"
    )


def entry(name: str, **required: Any) -> dict[str, Any]:
    return {"name": name, "required parameters": required or None, "conditions": None}


def call(*calls: str) -> str:
    """An actor's reply that makes these calls."""
    return f"<function_thought>next</function_thought><function_call>[{', '.join(calls)}]</function_call>"


def detected(*spans: Any) -> str:
    return f"<detected_instructions>{json.dumps(spans)}</detected_instructions>"


class RoleModel(ScriptedModel):
    """Plays DRIFT's roles, each with a reply that does no harm where the test gives none."""

    def __init__(self, **replies: str | Sequence[str]) -> None:
        plain = {"agent": STOP, "drift_planner": plan(), "drift_isolator": detected()}
        super().__init__({**plain, "drift_formatter": copy_checklist, **replies}, repeat=True)


def copy_checklist(request: ChatRequest) -> str:
    """The checklist as the formatter was given it."""
    return text_of(request.messages[-1]).partition("<parameter_checklist>")[2].partition("</")[0]


PERMISSIONS = {"drift_permissions": ["A", "A", "B", "C"]}


def run(
    model: RoleModel, tools: Tools, settings: DriftSettings | None = None, **options: Any
) -> tuple[list[Any], list[Span]]:
    """The conversation and the spans of one task."""
    model.replies.setdefault("drift_permissions", list(PERMISSIONS["drift_permissions"]))
    agent = DriftAgent(model, settings or DriftSettings(**options), "You work for Emma.", PermissionCache())
    first: ChatMessage = {"role": "user", "content": [{"type": "text", "content": QUERY}]}
    with use_tracer(Tracer()) as tracer:
        messages = agent.query(QUERY, tools.runtime, messages=[first])[3]
    return list(messages), tracer.spans


def decisions(spans: Sequence[Span], kind: str) -> list[Mapping[str, Any]]:
    return [span.decision for span in spans if span.kind == kind]
