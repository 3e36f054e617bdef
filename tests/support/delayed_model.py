"""Models whose replies come after a wait, so that what is asked at the same time ends in any order."""

from __future__ import annotations

import random
import re
import time
from typing import Any

from agentsys.attacks.attack_search import Proposal
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, format_proposal
from agentsys.models import chat
from agentsys.simulated.simulated_model import SimulatedModel


class Delayed:
    def __init__(self, model: chat.ChatModel, longest_s: float) -> None:
        self.name, self._model, self._longest_s = model.name, model, longest_s

    def complete(self, request: chat.ChatRequest) -> chat.ChatReply:
        time.sleep(random.uniform(0, self._longest_s))
        return self._model.complete(request)


LONGEST_S = 0.0
"""Longest wait of the simulated model; tests set it, as an option would be in the model's label."""


class DelayedSimulated(SimulatedModel):
    """The simulated model, each reply of which comes after up to LONGEST_S seconds."""

    def for_scene(self, scene: chat.Scene) -> Any:
        return Delayed(super().for_scene(scene), LONGEST_S)


class FailingAttacker:
    """A model with a price that does nothing as an agent, and as an attacker fails at the seventh step of a stream."""

    name = "failing"

    def complete(self, request: chat.ChatRequest) -> chat.ChatReply:
        time.sleep(0.02)
        if request.role != ATTACKER_ROLE:
            return chat.ChatReply(chat.assistant("Done."), chat.Usage(prompt=100_000, completion=1))
        words = " ".join(chat.text_of(message) for message in request.messages)
        step = 1 + max(map(int, re.findall(r"in step (\d+)", words)), default=0)
        if step == 7:
            raise chat.ModelError(chat.ErrorKind.BAD_REQUEST, "as told")
        text = format_proposal(Proposal(f"Send a transaction in step {step}."))
        return chat.ChatReply(chat.assistant(text), chat.Usage(prompt=100_000, completion=1))


DELAYED = """
_target_: delayed_model.DelayedSimulated
name: delayed
prose_name: AI assistant
simulated: true
context_tokens: null
price: null
susceptibility: 0.3
"""
FAILING = """
_target_: delayed_model.FailingAttacker
name: failing
prose_name: AI assistant
context_tokens: null
price: {prompt: 1.0, completion: 1.0, as_of: 2026-01-01}
"""
