"""`FaultyModel`: the simulated model with one fault, for folders whose numbers say nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from agentsys.defense.gate import find_first_object
from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.reply_checks import is_connection_question
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.simulated_model import SimulatedModel


class FaultyModel(SimulatedModel):
    """Writes prose for a program (`prose`), makes no call (`mute`), or returns an intent (`echo`)."""

    def __init__(self, *, fault: str, **options: Any) -> None:
        super().__init__(**options)
        self.fault = fault

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer as the simulated model does, but for the fault."""
        reply, acts = super().complete(request), request.role in ACTING_ROLES
        if self.fault == "prose" and acts and not request.tools:
            return replace(reply, message=assistant("First I would look at the balance, then answer."))
        if self.fault == "mute" and acts and not is_connection_question(request):
            return replace(reply, message=assistant("Done."))
        if self.fault == "echo" and request.role == "worker":
            intent = find_first_object(text_of(request.messages[1]))
            return replace(reply, message=assistant(json.dumps(intent)))
        return reply
