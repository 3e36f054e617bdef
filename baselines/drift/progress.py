"""The progress of a task along its plan, and the check of proposed calls against the plan."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from baselines.drift.plan import NO_CHECKLIST
from baselines.drift.refusal import UnplannedCall

MayExtend = Callable[[str, tuple[str, ...], tuple[str, ...]], bool]
"""Name of an unplanned call, the plan with it, the plan without it -> whether it may be made."""


@dataclass(frozen=True)
class PlanProgress:
    """The plan as it stands, and what of it is done."""

    plan: tuple[str, ...] = ()
    achieved: tuple[str, ...] = ()
    """Names of the calls accepted so far, in order."""
    checklist: str = NO_CHECKLIST
    """Text of the checklist; entry i belongs to `plan[i]` as long as it is JSON."""


@dataclass(frozen=True)
class PlanCheck:
    """Outcome of the check against the plan."""

    progress: PlanProgress
    """With the batch, if it was accepted; with what was accepted of it up to the refused name, if not."""
    refusal: UnplannedCall | None = None


def follow_plan(progress: PlanProgress, names: Sequence[str], may_extend: MayExtend) -> PlanCheck:
    """Hold the calls so far and a batch against the plan, place by place.

    A name that does not stand at its place is put in there, with an open entry in the checklist, if
    `may_extend` says so; the first one it refuses ends the check.
    """
    walk = (*progress.achieved, *names)
    for index, name in enumerate(walk):
        plan = progress.plan
        if index < len(plan) and plan[index] == name:
            continue
        extended = (*plan[:index], name, *plan[index:])
        if not may_extend(name, extended, plan):
            return PlanCheck(progress, UnplannedCall(name, extended, plan, progress.achieved))
        opened = insert_open_entry(progress.checklist, index, name)
        progress = PlanProgress(extended, walk[: index + 1], opened)
    return PlanCheck(replace(progress, achieved=walk))


def insert_open_entry(checklist: str, index: int, name: str) -> str:
    """The checklist with an entry that asks nothing, at a place.

    A checklist that is not JSON gets none, and is quoted once more, as in the reference implementation;
    with `FORMAT_ONCE` there is no such checklist.
    """
    try:
        entries = json.loads(checklist)
    except (ValueError, RecursionError):
        entries = checklist
    if isinstance(entries, list):
        entries.insert(index, {"name": name, "required parameters": None, "conditions": None})
    return json.dumps(entries)
