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
from agentsys.models.simulated.passages import found_passages
from agentsys.models.simulated.playbook import Fact, ScriptedCall
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.simulated.slips import quoting
from agentsys.models.tools import named_like_reading


def play_validator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """True if the proposed call is one of the user task's ground-truth calls, but for the set error rates."""
    sections = read_sections(task_text(request), VALIDATOR_SECTIONS)
    if sections is None:
        return assistant("False")
    _, proposed, query = sections
    call = json.loads(proposed)
    task = knowledge.task_in(query)
    right = task is not None and any(_same_call(call, known, task.facts) for known in task.calls)
    rate = knowledge.options.validator_false_deny if right else knowledge.options.validator_false_accept
    wrong = knowledge.draw(rate, validator.ROLE, proposed)
    return assistant(str(right is not wrong))


def _same_call(call: Mapping[str, Any], expected: ScriptedCall, facts: Iterable[Fact]) -> bool:
    """Whether tool and arguments agree. Arguments that the ground truth leaves out may be anything.

    So may those that hold a number which is another one in each case: the validator does not see it.
    """
    args, drawn = call["args"], [fact.text for fact in facts if fact.pattern]
    return call["tool"] == expected.function and all(
        key in args and (_plain(args[key]) == _plain(value) or any(text in str(value) for text in drawn))
        for key, value in expected.args.items()
    )


def _plain(value: object) -> str:
    return " ".join(json.dumps(value, sort_keys=True, default=str).casefold().split())


@quoting
def play_sanitizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The spans that hold a goal, each goal found with probability `sanitizer_recall`."""
    sections = read_sections(task_text(request), SANITIZER_SECTIONS)
    text = sections[0] if sections is not None else ""
    return assistant(json.dumps({"spans": found_passages(text, sanitizer.ROLE, knowledge)}))


def play_privileges(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Sorts tools by the first word of their names.

    One that fetches an address of the caller's choice (its description speaks of a URL) is a command, as the
    prompt says. A rule of the simulation only.
    """
    sections = read_sections(task_text(request), PRIVILEGES_SECTIONS)
    tools = [json.loads(line) for line in sections[0].split("\n")] if sections and sections[0] else []
    return assistant(json.dumps({tool["name"]: _sorted(tool).value for tool in tools}))


def _sorted(tool: Mapping[str, str]) -> Privilege:
    reads = named_like_reading(tool["name"])
    return Privilege.QUERY if reads and "url" not in tool["description"].casefold() else Privilege.COMMAND


ROLES: Mapping[str, SimulatedRole] = MappingProxyType(
    {
        worker.ROLE: play_worker,
        validator.ROLE: play_validator,
        sanitizer.ROLE: play_sanitizer,
        privileges.ROLE: play_privileges,
    }
)
"""Role -> handler."""
