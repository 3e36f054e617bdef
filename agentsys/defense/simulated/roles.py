"""The simulated model's play of the roles that AgentSys brings along."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from agentdojo.types import ChatAssistantMessage

from agentsys.defense import privileges, sanitizer, validator, worker
from agentsys.defense.privileges import Privilege
from agentsys.defense.prompts import PRIVILEGES_SECTIONS, SANITIZER_SECTIONS, VALIDATOR_SECTIONS
from agentsys.defense.reading.sections import read_sections
from agentsys.defense.simulated.worker import play_worker, task_text
from agentsys.models.chat import ChatRequest, assistant
from agentsys.models.simulated.passages import find_injected_passages
from agentsys.models.simulated.playbook import Fact, ScriptedCall
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.simulated.slips import mark_quoting_role
from agentsys.models.tools import has_reading_name


def play_validator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """True if the proposed call is one of the user task's ground-truth calls, but for the set error rates."""
    sections = read_sections(task_text(request), VALIDATOR_SECTIONS)
    if sections is None:
        return assistant("False")
    _, proposed, query = sections
    call = json.loads(proposed)
    task = knowledge.find_task(query)
    right = task is not None and any(_is_expected_call(call, known, task.facts) for known in task.calls)
    rate = knowledge.options.validator_false_deny if right else knowledge.options.validator_false_accept
    wrong = knowledge.draw(rate, validator.VALIDATOR_ROLE, proposed)
    return assistant(str(right is not wrong))


def _is_expected_call(call: Mapping[str, Any], expected: ScriptedCall, facts: Iterable[Fact]) -> bool:
    """Whether tool and arguments agree. Arguments that the ground truth leaves out may be anything.

    So may those that hold a number which is another one in each case: the validator does not see it.
    """
    args, drawn = call["args"], [fact.text for fact in facts if fact.pattern]
    return call["tool"] == expected.function and all(
        key in args and (_normalise_argument(args[key]) == _normalise_argument(value) or any(text in str(value) for text in drawn))
        for key, value in expected.args.items()
    )


def _normalise_argument(value: object) -> str:
    return " ".join(json.dumps(value, sort_keys=True, default=str).casefold().split())


@mark_quoting_role
def play_sanitizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The spans that hold a goal, each goal found with probability `sanitizer_recall`."""
    sections = read_sections(task_text(request), SANITIZER_SECTIONS)
    text = sections[0] if sections is not None else ""
    return assistant(json.dumps({"spans": find_injected_passages(text, sanitizer.SANITIZER_ROLE, knowledge)}))


def play_privileges(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Sorts tools by the first word of their names.

    One that fetches an address of the caller's choice (its description speaks of a URL) is a command, as the
    prompt says. A rule of the simulation only.
    """
    sections = read_sections(task_text(request), PRIVILEGES_SECTIONS)
    tools = [json.loads(line) for line in sections[0].split("\n")] if sections and sections[0] else []
    return assistant(json.dumps({tool["name"]: _guess_privilege(tool).value for tool in tools}))


def _guess_privilege(tool: Mapping[str, str]) -> Privilege:
    reads = has_reading_name(tool["name"])
    return Privilege.QUERY if reads and "url" not in tool["description"].casefold() else Privilege.COMMAND


SIMULATED_ROLES: Mapping[str, SimulatedRole] = MappingProxyType(
    {
        worker.WORKER_ROLE: play_worker,
        validator.VALIDATOR_ROLE: play_validator,
        sanitizer.SANITIZER_ROLE: play_sanitizer,
        privileges.PRIVILEGES_ROLE: play_privileges,
    }
)
"""Role -> handler."""
