"""How the simulated model reads the disguises: all of them, as the most capable of models might.

Where a disguised attack stands whole in what an acting agent reads, it reads the words behind it. So an
attack fails on the simulated model only if the defense took it out, and never because the model could not
read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from agentdojo.types import ChatAssistantMessage, ChatMessage, text_content_block_from_string

from agentsys.benchmarks.vectors.corpus import corpus
from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.simulated.agent import plain_agent
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.trace import ACTING_ROLES


def roles() -> Mapping[str, SimulatedRole]:
    """Role -> handler, for the roles that act."""
    return dict.fromkeys(ACTING_ROLES, play_reader)


def play_reader(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The plain agent, for whom every disguise is transparent."""
    return plain_agent(replace(request, messages=[_seen_through(m) for m in request.messages]), knowledge)


def _seen_through(message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    read = seen_through(text_of(message))
    return message if read is None else {**message, "content": [text_content_block_from_string(read)]}


@lru_cache(maxsize=512)
def seen_through(text: str) -> str | None:
    """The text with the words in place of their disguises; None where there is no disguise in it."""
    read = text
    for disguised, words in _disguises().items():
        if disguised in read:
            read = read.replace(disguised, words)
    return None if read == text else read


@lru_cache(maxsize=1)
def _disguises() -> dict[str, str]:
    """Disguised attack -> its words, the longest first."""
    attacks = [text for vector in corpus().vectors.values() for text in vector.attacks if text.hide]
    return {text.disguised: text.text for text in sorted(attacks, key=lambda one: -len(one.disguised))}
