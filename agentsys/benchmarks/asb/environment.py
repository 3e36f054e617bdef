"""`ASBEnvironment`: the world of a case, which is only what was called and what was injected."""

from __future__ import annotations

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
    def injected(self) -> int:
        """How many results carried the injected text."""
        return sum(use.payload for use in self.uses)
