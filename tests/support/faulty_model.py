"""`FaultyModel`: the simulated model with one fault, for folders whose numbers say nothing; and one that refuses."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.defense.gate import find_first_object
from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of
from agentsys.models.endings import Ending
from agentsys.models.reply_checks import is_connection_question
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.simulated_model import SimulatedModel


class RefusingModel:
    """The name is its YAML's."""

    def __init__(self, name: str = "refuser") -> None:
        self.name = name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Refuse."""
        return ChatReply(assistant("I cannot help with that."), Usage(1, 1), model_id=self.name)


class FaultyModel(SimulatedModel):
    """Has one fault.

    It writes prose for a program (`prose`), makes no call (`mute`), returns an intent (`echo`), is cut short
    (`ramble`), or makes one call for ever (`loop`).
    """

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
        if self.fault == "ramble" and acts:
            return replace(reply, message=assistant("And so on, and"), ending=Ending.CUT)
        if self.fault == "loop" and acts and request.tools:
            call = FunctionCall(function="get_balance", args={}, id="call_1")
            return replace(reply, message=assistant(None, [call]))
        if self.fault == "echo" and request.role == "worker":
            intent = find_first_object(text_of(request.messages[1]))
            return replace(reply, message=assistant(json.dumps(intent)))
        return reply


def write_faulty_config(folder: Path) -> list[str]:
    """Write the YAML of `model=faulty` (with `model.fault=...`) and give the options that find it."""
    root = Path(__file__).parents[2]
    plain = (root / "configs" / "model" / "simulated.yaml").read_text(encoding="utf-8")
    own = re.sub(r"_target_: \S+", "_target_: faulty_model.FaultyModel", plain)
    (folder / "model").mkdir(parents=True)
    named = own.replace("name: simulated", "name: m")
    (folder / "model" / "faulty.yaml").write_text(f"{named}\nfault: mute\n", encoding="utf-8")
    return ["--config-dir", str(folder), "--plugin-path", str(root / "tests" / "support"), "model=faulty"]
