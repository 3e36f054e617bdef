"""An attacker and a defense that count their calls in files and kill the process, or fail, at a set one."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentsys.attacks.attack_search import Proposal
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, format_proposal
from agentsys.attacks.attacker_search import play_attacker
from agentsys.attacks.search_attacks import PairAttack
from agentsys.models.chat import ChatModel, ChatRequest, ErrorKind, ModelError, assistant
from agentsys.simulated.simulated_role import SimulatedRole
from baselines.none import NoDefense


def counted(folder: str, what: str) -> int:
    """Book one more call of a kind; how many there were, this one included. One thread at a time."""
    with (Path(folder) / what).open("a") as file:
        file.write("x")
    return calls(folder, what)


def calls(folder: str | Path, what: str) -> int:
    path = Path(folder) / what
    return len(path.read_text()) if path.exists() else 0


def _fate(folder: str, what: str, number: int) -> None:
    """Do what the file `kill`, `fail` or `refuse` of the folder says for this call."""
    for deed in ("kill", "fail", "refuse"):
        order = Path(folder) / deed
        if order.exists() and order.read_text() == f"{what} {number}":
            if deed == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            kind = ErrorKind.CONTENT_REFUSED if deed == "refuse" else ErrorKind.SERVER_ERROR
            raise ModelError(kind, "as told")


class CountedPair(PairAttack):
    """PAIR whose simulated attacker counts. `says`: what it says instead; `off_topic`: every second text."""

    def __init__(self, folder: str, off_topic: bool = False, says: str = "", **options: Any) -> None:
        super().__init__(on_topic="model", **options)
        self._folder, self._off_topic, self._says = folder, off_topic, says

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        def play(request: ChatRequest, knowledge: Any) -> Any:
            number = counted(self._folder, "attacker")
            _fate(self._folder, "attacker", number)
            if self._says:
                return assistant(self._says)
            if self._off_topic and number % 2:
                return assistant(format_proposal(Proposal(f"Nice weather, {number}.")))
            return play_attacker(request, knowledge)

        return {**super().simulated_roles(), ATTACKER_ROLE: play}


class CountedDefense(NoDefense):
    """No defense; counts the cases it is built for."""

    name = "counted"

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def pipeline(self, model: ChatModel, suite: Any) -> Any:
        _fate(self._folder, "query", counted(self._folder, "query"))
        return super().pipeline(model, suite)
