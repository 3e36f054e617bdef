"""`Vectors`: the benchmark, one suite per vector, on one half of the corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from agentdojo.types import ChatAssistantMessage, ChatMessage, text_content_block_from_string

from agentsys.benchmarks.options import choose_suites
from agentsys.benchmarks.vectors.corpus import CorpusHalf, load_corpus
from agentsys.benchmarks.vectors.suite import VectorSuite
from agentsys.errors import require_known_name, find_enum_member
from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.simulated.agent import play_plain_agent
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.trace import ACTING_ROLES


class Vectors:
    """Implements `agentsys.contracts.Benchmark`.

    The half is part of the benchmark's name: results of the two never meet in one column.

    Args:
        half: `development`, `held_out`, `later` or `all`.
        suites: The vectors to offer; None means all twelve.
        user_name: The user's name as attacks address it.

    Raises:
        ConfigError: If a half or a vector is not known.
    """

    injection = "exact"
    """Injected texts are put in as they are, without a YAML file in between."""

    def __init__(
        self, half: str = "held_out", suites: Sequence[str] | None = None, user_name: str = "the user"
    ) -> None:
        found, part = load_corpus(), find_enum_member("benchmark.half", half, CorpusHalf)
        self.name = f"vectors-{half}"
        self.version = f"1-{found.digest[:8]}"
        self.user_name = user_name
        self._suites = {
            name: VectorSuite(name, found.vectors[name], part, found.digest)
            for name in choose_suites("vector of benchmark.suites", suites, found.vectors)
        }

    def suite_names(self) -> Sequence[str]:
        """The offered vectors, in the corpus's order."""
        return tuple(self._suites)

    def suite(self, name: str) -> VectorSuite:
        """One vector's suite, the same object on every call."""
        return self._suites[require_known_name(f"vector of {self.name}", name, self._suites)]

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """How the simulated model reads disguised text."""
        return vector_roles()


def vector_roles() -> Mapping[str, SimulatedRole]:
    """Role -> handler, for the roles that act."""
    return dict.fromkeys(ACTING_ROLES, play_undisguised_agent)


def play_undisguised_agent(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The plain agent, for whom every disguise is transparent."""
    return play_plain_agent(replace(request, messages=[_undisguise_message(m) for m in request.messages]), knowledge)


def _undisguise_message(message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    read = undisguise_text(text_of(message))
    return message if read is None else {**message, "content": [text_content_block_from_string(read)]}


@lru_cache(maxsize=512)
def undisguise_text(text: str) -> str | None:
    """The text with the words in place of their disguises; None where there is no disguise in it."""
    read = text
    for disguised, words in _load_disguises().items():
        if disguised in read:
            read = read.replace(disguised, words)
    return None if read == text else read


@lru_cache(maxsize=1)
def _load_disguises() -> dict[str, str]:
    """Disguised attack -> its words, the longest first."""
    attacks = [text for vector in load_corpus().vectors.values() for text in vector.attacks if text.hide]
    return {text.disguised_text: text.text for text in sorted(attacks, key=lambda one: -len(one.disguised_text))}
