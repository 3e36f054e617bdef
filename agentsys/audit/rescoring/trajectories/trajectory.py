"""`Trajectory`: what one record says was done - the calls that ran, those a check may see, the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentdojo.types import MessageContentBlock

from agentsys.benchmarks.agentdyn.checkout import FETCHED
from agentsys.records.short_names import shorten_name
from agentsys.records.simulated_name import SIMULATED_MARK
from agentsys.records.stored_file import Producer


@dataclass(frozen=True)
class RecordedCall:
    """One tool call."""

    function: str
    args: Mapping[str, Any]
    text: str | None = None
    """What the record says the tool returned (its error, where it failed); None where it does not say."""


@dataclass(frozen=True)
class Trajectory:
    """One recorded case, ready to be done again."""

    source: str
    """Path of the file."""
    form: Producer
    benchmark: str
    """`agentdojo`, or our label with the options that change what models read."""
    version: str | None
    """The version it was scored with; None where the file names none."""
    pipeline: str
    suite: str
    user_task_id: str
    """An injection task's id where that was run as if a user had asked for it."""
    injection_task_id: str | None
    attack: str
    """`none` in benign cases."""
    injections: Mapping[str, str] | None
    """Injection vector -> text; None where the file does not record what was injected."""
    executed: tuple[RecordedCall, ...]
    """Every call that reached a tool, in order; with inner agents' calls where the file has them."""
    seen_by_checks: tuple[RecordedCall, ...]
    """The calls that checks which look at calls are given."""
    answer: tuple[MessageContentBlock, ...]
    """The last assistant message, whole, as AgentDojo and DRIFT judge it."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of the tool messages, as the agent was shown them."""
    utility: bool
    security: bool | None
    """As recorded; None in benign cases, where the stored value means nothing."""
    error: str | None = None
    """What ended the run; its scores then mean nothing."""
    data_hash: str | None = None
    """Hash of the suite's data when the case was run; only our own records have it."""
    clock: datetime | None = None
    """Where the clock that its tools read began; None where that is not known, or was the machine's."""
    drawn: tuple[str, ...] = ()
    """Codes and numbers that its tools drew at random, in order; empty where the file does not say."""
    checkout: str = FETCHED
    """Folder of AgentDyn's checkout to score with, for records of its suites."""
    simulated: bool = False
    """Whether a simulated model was behind it: no LLM's result."""
    exposed_raw: bool | None = None
    """Whether a tool returned the payload, as watched while the case ran; only our own records have it."""

    @property
    def shown_pipeline(self) -> str:
        """The pipeline's name as tables must show it: simulated ones and DRIFT's, which name none, marked."""
        defense = " (drift)" if self.form == "drift" else ""
        return f"{shorten_name(self.pipeline)}{defense}{SIMULATED_MARK if self.simulated else ''}"

    @property
    def is_benign(self) -> bool:
        """Whether nothing was injected."""
        return self.injection_task_id is None

    @property
    def is_injection_task_alone(self) -> bool:
        """Whether an injection task was run as if a user had asked for it."""
        return self.user_task_id.startswith("injection_task_")

    @property
    def name(self) -> str:
        """Suite, tasks and attack, e.g. `banking user_task_1 x injection_task_2 (direct)`."""
        if self.injection_task_id is None:
            return f"{self.suite} {self.user_task_id}"
        return f"{self.suite} {self.user_task_id} x {self.injection_task_id} ({self.attack})"
