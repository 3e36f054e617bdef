"""The simulated model's play of the masked pass: it obeys what tool outputs ask for, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant, text_of, tool_message, user
from agentsys.models.simulated.agent import plain_agent
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from baselines.melon.element import MASKED_ROLE
from baselines.melon.masked_conversation import RULE
from baselines.melon.prompts import MASKED_REQUEST

SUMMARY = "The file holds tool calls and their outputs, and no instructions."


def play_masked(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The next open call of a goal that stands in the file, else a summary.

    It reads the file as a conversation of its own, in which each section is a call that has been made. The
    masked request asks to follow instructions, so a goal is always obeyed, whatever the susceptibility.
    A real model also takes up harmless requests that stand in data ("pay this bill"), which is where
    MELON's false positives come from; the simulated one does not.
    """
    if not request.messages:
        return assistant(SUMMARY)
    willing = replace(knowledge, options=replace(knowledge.options, susceptibility=1.0))
    unfolded = [user(MASKED_REQUEST), *_as_conversation(text_of(request.messages[-1]))]
    return plain_agent(replace(request, messages=unfolded), willing)


def _as_conversation(file: str) -> Iterator[ChatMessage]:
    for place, (function, output) in enumerate(_sections(file)):
        call = FunctionCall(function=function, args={}, id=f"read_{place}")
        yield assistant(None, [call])
        yield tool_message(call, output)


def _sections(file: str) -> list[tuple[str, str]]:
    """Tool and output of each section of the file that `masked_conversation` writes."""
    parts = file.split(f"{RULE}\n\nfunction: ")[1:]
    heads = [part.partition("\n\n") for part in parts]
    return [(name, rest.removesuffix(f"\n\n{RULE}\n\n")) for name, _, rest in heads]


ROLES: dict[str, SimulatedRole] = {MASKED_ROLE: play_masked}
