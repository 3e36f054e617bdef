"""Cases of a benchmark whose suites have a single user task each, as analysis sees them."""

from __future__ import annotations

from typing import Any

from stored_cases import row

from agentsys.records.case_row import CaseRow

AGENTS = tuple("abcdefghij")
TOOLS = 8


def attacked(agent: str, tool: int, *, hit: bool = False, planned: bool = False, **fields: Any) -> CaseRow:
    """One attacked case with the facts of a benchmark that measures causes."""
    facts = {
        "mode": "faithful",
        "control": False,
        "injection_success_execution": hit,
        "injection_success_text": hit,
        "planner_chosen": hit and planned,
        "injection_caused": hit and not planned,
        "utility_execution": True,
        "utility_text": True,
        "payloads_delivered": 1,
        "refused": False,
        "workflow_failure": False,
    } | fields.pop("facts", {})
    plain: dict[str, Any] = {
        "benchmark": "asb-faithful",
        "version": "sample",
        "attack": "opi_context_ignoring",
        "suite": agent,
        "injection_task_id": f"injection_task_{tool}",
        "injection_success": hit,
        "measured": facts,
    }
    return row(**(plain | fields))


def control(agent: str, tool: int, *, hit: bool = False, **fields: Any) -> CaseRow:
    """The same with an empty payload."""
    facts = {"control": True, "payloads_delivered": 0} | fields.pop("facts", {})
    return attacked(agent, tool, hit=hit, planned=True, attack="opi_empty", facts=facts, **fields)


def benign(agent: str, *, solved: bool = True, **fields: Any) -> CaseRow:
    """The agent's only task without attack."""
    facts = {"mode": "faithful", "utility_execution": solved, "utility_text": solved}
    plain: dict[str, Any] = {"benchmark": "asb-faithful", "version": "sample", "attack": "none"}
    return row(**(plain | {"suite": agent, "utility": solved, "measured": facts} | fields))


def grid(hits: dict[str, int], **fields: Any) -> list[CaseRow]:
    """Every agent's cases; of each agent the first so many succeed."""
    return [attacked(a, t, hit=t < hits.get(a, 0), **fields) for a in AGENTS for t in range(TOOLS)]
