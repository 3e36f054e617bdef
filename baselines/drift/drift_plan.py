"""`DriftSettings`, the permissions of tools, and `PlanProgress`: a task's plan and what of it is done.

`PermissionCache` asks a model once for each tool whether a call reads, writes or executes. The plan is made before
any result is seen; `follow_plan` compares calls with it, place by place.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ToolSpec
from agentsys.models.early_questions import questions_ahead
from agentsys.models.prompted_tools import find_text_between_tags, wrap_in_tag, write_tools
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import Tracer, get_current_tracer, span, use_tracer
from baselines.drift.prompts import PERMISSION, PLANNER, REFUSED_UNPLANNED

PERMISSION_ROLE = "drift_permissions"
FUNCTION_TAG = "function"
"""Tag around the tool in the question."""


class ToolPermission(Enum):
    """The effect that a call of a tool can have. Write and Execute are treated alike."""

    READ = "Read"
    WRITE = "Write"
    EXECUTE = "Execute"


_NAMED = re.compile(r"\W*(?:answer\W+)?(?:([ABC])\b\W*)?(read|write|execute)?\W*", re.IGNORECASE)
_LETTERS = {"A": ToolPermission.READ, "B": ToolPermission.WRITE, "C": ToolPermission.EXECUTE}


def find_permission(reply: str) -> ToolPermission | None:
    """Read a permission given as letter, word or both ("A. Read"); None if a reply names none, or two."""
    named = _NAMED.fullmatch(reply)
    by_letter, by_word = named.groups() if named else (None, None)
    read = {_LETTERS[by_letter.upper()]} if by_letter else set[ToolPermission]()
    read |= {ToolPermission(by_word.capitalize())} if by_word else set()
    return read.pop() if len(read) == 1 else None


def read_permission_reply(reply: str, *, compat: bool) -> ToolPermission:
    """Read the permission that a reply names; what says nothing is Write."""
    if not compat:
        return find_permission(reply) or ToolPermission.WRITE
    # Reference: a B anywhere is Write, then a C anywhere Execute, and all else Read.
    return next((_LETTERS[letter] for letter in "BC" if letter in reply), ToolPermission.READ)


PERMISSION_CONTRACT = ReplyContract(
    PERMISSION_ROLE, *PERMISSION, find_permission, schema={"enum": list(_LETTERS)}
)
"""The tool classifier's answer."""


@dataclass
class PermissionCache:
    """Permissions of toolsets, each asked for once, by however many threads.

    In memory only: another run asks again, so give the permissions in the config where runs must not
    depend on it.
    """

    _known: dict[tuple[str, str, bool], ToolPermission] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def load_permissions(
        self, model: ChatModel, tools: Sequence[ToolSpec], *, compat: bool
    ) -> Mapping[str, ToolPermission]:
        """Return each tool's permission, from the cache or from the model (one question per tool)."""
        keys = {tool.name: (model.name, format_tool_line(tool), compat) for tool in tools}
        with self._guard:
            self._ask_about(model, [key for key in dict.fromkeys(keys.values()) if key not in self._known])
            return {name: self._known[key] for name, key in keys.items()}

    def _ask_about(self, model: ChatModel, keys: Sequence[tuple[str, str, bool]]) -> None:
        questions = {key: wrap_in_tag(FUNCTION_TAG, key[1]) for key in keys}
        # Booked to no case: which one comes first depends on threads.
        usage_log = get_current_tracer().usage_log
        with use_tracer(Tracer(usage_log=usage_log)), questions_ahead(model) as early:
            if early is not None:
                for question in questions.values():
                    early.ask(PERMISSION_CONTRACT.request(PERMISSION_CONTRACT.open_conversation(question)))
            for key, question in questions.items():
                compat = key[2]
                reply = PERMISSION_CONTRACT.ask(model, question, 0 if compat else 1).words
                self._known[key] = read_permission_reply(reply, compat=compat)


def format_tool_line(tool: ToolSpec) -> str:
    """Write a tool as one line of JSON."""
    return json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


UnreadableDetection = Literal["withhold", "keep"]


@dataclass(frozen=True)
class DriftSettings:
    """The options of one variant of DRIFT, which `Drift` explains."""

    build_constraints: bool = True
    dynamic_validation: bool = True
    injection_isolation: bool = True
    compat: bool = False
    """True to keep the reference's defects; each place is marked with a comment `# Reference:`."""
    permissions: Mapping[str, ToolPermission] = field(default_factory=lambda: MappingProxyType({}))
    judge_arguments: bool = False
    unreadable_detection: UnreadableDetection = "withhold"
    message_cap: AtLeast1 = 20
    max_rounds: AtLeast1 = 15
    parse_attempts: AtLeast1 = 3
    format_attempts: AtLeast1 = 3
    detector_calls: AtLeast1 = 2
    """Most questions to the detector about one result."""


PLANNER_ROLE = "drift_planner"
TRAJECTORY, CHECKLIST = "function_trajectory", "parameter_checklist"
"""Tags of the two sections that are read; the planner's analysis and thoughts are for itself."""
NO_CHECKLIST = "None"


@dataclass(frozen=True)
class PlanProgress:
    """The current plan, and its completed part."""

    plan: tuple[str, ...] = ()
    """Tool names in order; not checked against the existing tools."""
    achieved: tuple[str, ...] = ()
    """Names of the calls accepted so far, in order."""
    checklist: str = NO_CHECKLIST
    """Text of the checklist: JSON, a Python literal, or neither; entry i of JSON belongs to `plan[i]`."""


def read_drift_plan(reply: str) -> PlanProgress:
    """Read the plan in a planner's reply. A section that is missing is empty."""
    names = find_text_between_tags(reply, TRAJECTORY) or ""
    checklist = find_text_between_tags(reply, CHECKLIST)
    pieces = names.strip().removeprefix("[").removesuffix("]").split(",")
    plan = tuple(name for piece in pieces if (name := piece.strip().strip("\"'`").strip()))
    return PlanProgress(plan, (), NO_CHECKLIST if checklist is None else checklist)


PLANNER_CONTRACT = ReplyContract(
    PLANNER_ROLE,
    *PLANNER,
    lambda reply: None if find_text_between_tags(reply, TRAJECTORY) is None else read_drift_plan(reply),
)
"""The planner's answer: at least a trajectory."""


def make_drift_plan(
    model: ChatModel, query: str, tools: Sequence[ToolSpec], environment: str, retries: int = 0
) -> PlanProgress:
    """Ask for the plan of a request; where no reply holds one, what there is of it in the last is taken."""
    with span(PLANNER_ROLE) as opened:
        # The example comes last: a small model writes on with whatever follows it.
        task = "\n\n".join([PLANNER_CONTRACT.task, write_tools(tools), environment])
        contract = replace(PLANNER_CONTRACT, task=task)
        answer = contract.ask(model, query, retries)
        plan = answer.value or read_drift_plan(answer.words)
        opened.decision = {"plan": list(plan.plan), "checklist": plan.checklist}
    return plan


REFUSAL_MARK = "[CALL ERROR]"
"""First words of every refusal, by which the reference keeps its loop going."""


@dataclass(frozen=True)
class DriftRefusal:
    """The reason for refusing calls, for the trace and in words."""

    kind: str
    """`unplanned`, `checklist` or `repeat`."""
    template: str
    """The words that the actor reads; a judge's reason is never among them."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Data for the trace, JSON-ready, which the template may quote."""
    calls: Sequence[FunctionCall] = ()
    """The whole batch, where the template quotes it."""

    def make_decision_data(self) -> dict[str, Any]:
        """Return the refusal as recorded in the trace."""
        return {"kind": self.kind, **self.facts}


def build_call_data(calls: Sequence[FunctionCall]) -> list[dict[str, Any]]:
    """Convert calls to JSON-ready data: name and arguments."""
    return [{"function": call.function, "args": json.loads(format_args(call))} for call in calls]


def format_calls(calls: Sequence[FunctionCall]) -> str:
    """Write calls as one line of JSON."""
    return json.dumps(build_call_data(calls), ensure_ascii=False)


def format_args(call: FunctionCall) -> str:
    """Write a call's arguments as JSON, what JSON has no form for as text."""
    return json.dumps(dict(call.args), ensure_ascii=False, default=str)


MayExtend = Callable[[str, tuple[str, ...], tuple[str, ...]], bool]
"""Name of an unplanned call, the plan with it, the plan without it -> whether it may be made."""


@dataclass(frozen=True)
class PlanCheck:
    """Outcome of a check of one batch."""

    progress: PlanProgress
    """The plan that the next batch is checked against."""
    refusal: DriftRefusal | None = None


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
            lists = {"extended": list(extended), "plan": list(plan), "achieved": list(progress.achieved)}
            return PlanCheck(progress, DriftRefusal("unplanned", REFUSED_UNPLANNED, {"name": name, **lists}))
        opened = insert_open_entry(progress.checklist, index, name)
        progress = PlanProgress(extended, walk[: index + 1], opened)
    return PlanCheck(replace(progress, achieved=walk))


def insert_open_entry(checklist: str, index: int, name: str) -> str:
    """Put an entry that asks nothing into the checklist.

    A checklist that is not JSON gets none, and is quoted once more, as in the reference implementation;
    without `compat` there is no such checklist.
    """
    try:
        entries = json.loads(checklist)
    except (ValueError, RecursionError):
        entries = checklist
    if isinstance(entries, list):
        entries.insert(index, {"name": name, "required parameters": None, "conditions": None})
    return json.dumps(entries)
