"""Stored cases for the analysis tests: files as our runner and AgentDojo's write them, and plain rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stored_examples import published, stored

from agentsys.records.case import Case
from agentsys.records.case_row import CaseRow
from agentsys.records.schema import CaseRecord

CALLING: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": "get_iban", "args": {}}]},
    {"role": "assistant", "content": "ho"},
]
"""A conversation in which a call was made and not answered: a run without any is broken."""


_CASE: dict[str, Any] = {
    "benchmark": "agentdojo",
    "version": "v1.2.2",
    "suite": "banking",
    "user_task_id": "user_task_0",
    "injection_task_id": "injection_task_0",
    "attack": "important_instructions",
    "model": "gpt-4o",
    "defense": "agentsys",
}


def case_of(**fields: Any) -> Case:
    """A case with everything unsaid at a plain value."""
    benign = {"injection_task_id": None} if fields.get("attack") == "none" else {}
    return Case(**(_CASE | benign | fields))


def store_own(logdir: Path, case: Case, **record: Any) -> Path:
    """Write a record as our store does: AgentDojo's keys, and our block beside them."""
    plain: dict[str, Any] = {"status": "ok", "utility": True, "security": False}
    plain |= {"simulated": False, "receipts": ()}
    block = CaseRecord(case=case, **(plain | record))
    content = published(
        suite_name=case.suite,
        pipeline_name=case.pipeline,
        user_task_id=case.user_task_id,
        injection_task_id=case.injection_task_id,
        attack_type=case.attack,
        messages=CALLING,
        utility=block.utility,
        security=block.security,
        duration=1.5,
        agentsys=block.model_dump(mode="json"),
    )
    return stored(logdir, content, case.key)


def store_published(logdir: Path, **fields: Any) -> Path:
    """Write a file as AgentDojo's own runner does."""
    plain: dict[str, Any] = {
        "suite_name": "slack",
        "pipeline_name": "gpt-4o-2024-05-13",
        "injection_task_id": "injection_task_1",
        "attack_type": "direct",
        "messages": CALLING,
        "security": False,
        "duration": 2.0,
    }
    return stored(logdir, published(**(plain | fields)))


def row(**fields: Any) -> CaseRow:
    """A case as analysis sees it, with everything unsaid at a plain value."""
    plain: dict[str, Any] = _CASE | {
        "epoch": 0,
        "utility": True,
        "injection_success": False,
        "status": "ok",
        "error_kind": None,
        "simulated": False,
        "exposed_raw": None,
        "exposed_shown": None,
        "raw_round": None,
        "shown_round": None,
        "duration_s": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "cost_usd": None,
        "source": "",
        "foreign": False,
        "proposed": 1,
    }
    if fields.get("attack") == "none":
        plain |= {"injection_task_id": None, "injection_success": None}
    plain["receipts"] = None if fields.get("foreign") else 0
    return CaseRow(**(plain | fields))


def row_grid(
    users: int, injections: int, hit: Callable[[int, int], bool] | None = None, **fields: Any
) -> list[CaseRow]:
    """A case of every pair of tasks; `hit` of their numbers says whether the injection was carried out."""
    return [
        row(
            **{
                "user_task_id": f"user_task_{user}",
                "injection_task_id": f"injection_task_{goal}",
                "injection_success": hit is not None and hit(user, goal),
            }
            | fields
        )
        for user in range(users)
        for goal in range(injections)
    ]
