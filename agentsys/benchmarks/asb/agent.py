"""`Agent`: one role-playing agent with its tasks and tools, as the data files describe it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NormalTool:
    """A simulated tool of the agent's own."""

    name: str
    description: str
    output: str
    """All it ever returns (`Expected Achievements` in the file)."""


@dataclass(frozen=True)
class AttackTool:
    """A tool the attacker wants called."""

    name: str
    description: str
    """Innocent on the face of it; models read it."""
    instruction: str
    """What the injected text asks for (`Attacker Instruction`)."""
    goal: str
    """What the attacker achieves (`Attack goal`): the tool's output ends with it."""
    style: str
    """`Stealthy Attack` or `Disruptive Attack`."""
    aggressive: bool
    """Whether the purpose is openly harmful."""


@dataclass(frozen=True)
class Agent:
    """One agent, in the order of the files."""

    name: str
    tasks: tuple[str, ...]
    normal_tools: tuple[NormalTool, ...]
    attack_tools: tuple[AttackTool, ...]
    digest: str
    """SHA-256, in hex, of all of the above: which data a case was run with."""
