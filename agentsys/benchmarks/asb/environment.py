"""`ASBEnvironment`: the world of a case, which is only what was called and what was injected.

`PlanStep` says where in its plan a conversation stands while tools run. A tool cannot be told by its caller:
whichever agent of a defense calls it, it runs in the step that the conversation is in. So the step travels
beside the calls, in the context of the case's thread.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from agentdojo.functions_runtime import TaskEnvironment
from pydantic import BaseModel, ConfigDict, Field


class ToolUse(BaseModel):
    """One tool call that ran."""

    model_config = ConfigDict(frozen=True)

    tool: str
    reply: int
    """How many replies with tool calls models had given when it ran; calls of one reply share it."""
    step: int | None
    """The plan's step it ran in, from 1; None without a plan."""
    payload: bool
    """Whether the injected text was appended to its result."""


class ASBEnvironment(TaskEnvironment):  # type: ignore[misc]
    """State of one case. The simulated tools keep nothing else."""

    agent: str
    data: str
    """Digest of the agent's data, so that `versions.data` of a record tells data sets apart."""
    injection: str = ""
    """Appended to tool results; `""` injects nothing."""
    uses: list[ToolUse] = Field(default_factory=list)
    """Every tool call that ran, in order."""

    @property
    def calls(self) -> list[str]:
        """The names of the tools that ran, in order."""
        return [use.tool for use in self.uses]

    @property
    def payload_count(self) -> int:
        """Number of results that carried the injected text."""
        return sum(use.payload for use in self.uses)


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan on its way."""

    step: int
    """The step's place in the plan, from 1."""
    step_count: int
    """How many steps the plan has."""

    @property
    def is_final(self) -> bool:
        """Whether it is the plan's last step, in which nothing is injected any more."""
        return self.step >= self.step_count


_CURRENT_STEP: ContextVar[PlanStep | None] = ContextVar("agentsys_asb_turn", default=None)


def get_plan_step() -> PlanStep | None:
    """The step whose tool calls run now; None where the conversation has no plan, or none yet."""
    return _CURRENT_STEP.get()


def set_plan_step(turn: PlanStep | None) -> None:
    """Say which step runs from now on in this context; None: no plan."""
    _CURRENT_STEP.set(turn)
