"""`ScriptPosition`: one scripted sequence of calls, and how far a conversation has taken it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsys.models.simulated.conversation import ToolResult
from agentsys.models.simulated.playbook import GoalScript, ScriptedCall

MAX_ATTEMPTS = 3
"""Times a failing call is made before the agent goes on without it."""

PLACEHOLDER = "unknown"
"""Stands for a value the agent has not seen."""


@dataclass
class ScriptPosition:
    """Calls to be made in order. Calls of tools that are not on offer are left out."""

    steps: list[tuple[int, ScriptedCall]]
    """Index in the script, call."""
    goal: GoalScript | None = None
    """The goal these calls carry out; None for the user's own task."""
    done: int = 0
    """Steps that are over."""
    attempts: int = 0
    """Failed attempts at the current step."""
    outputs: dict[int, str] = field(default_factory=dict)
    """Results read, by index in the script; kept only where a later call quotes them."""

    @property
    def step(self) -> tuple[int, ScriptedCall] | None:
        """The step that comes next; None at the end."""
        return self.steps[self.done] if self.done < len(self.steps) else None

    def record_result(self, result: ToolResult) -> None:
        """Book a result of the current step."""
        index, _ = self.steps[self.done]
        if result.failed:
            self.record_failure()
            return
        if self._is_quoted(index):
            self.outputs[index] = result.text
        self._advance()

    def record_failure(self) -> None:
        """Book a failed attempt at the current step; after the last one the step is given up."""
        self.attempts += 1
        if self.attempts >= MAX_ATTEMPTS:
            self._advance()

    def _advance(self) -> None:
        self.done += 1
        self.attempts = 0

    def _is_quoted(self, index: int) -> bool:
        return any(quote.source == index for _, call in self.steps for quote in call.quotes)


def start_position(
    calls: Iterable[ScriptedCall], tools: frozenset[str], goal: GoalScript | None = None
) -> ScriptPosition:
    """The beginning of a script, less the calls that cannot be made with these tools."""
    return ScriptPosition([(index, call) for index, call in enumerate(calls) if call.function in tools], goal)


def find_answered(lines: Iterable[ScriptPosition], result: ToolResult) -> ScriptPosition | None:
    """The line whose current step this result answers: same tool and arguments, else the same tool.

    A defense may rewrite arguments on the way; results of anything else are not the agent's.
    """
    waiting = [line for line in lines if line.step is not None and line.step[1].function == result.function]
    for line in waiting:
        if line.step is not None and _has_scripted_arguments(line.step[1], result.args):
            return line
    return waiting[0] if waiting else None


def _has_scripted_arguments(call: ScriptedCall, args: Mapping[str, Any]) -> bool:
    """Whether the arguments are the scripted ones, placeholders and quotes aside."""
    free = {quote.arg for quote in call.quotes}
    told = ((value, args.get(name)) for name, value in call.args.items() if name not in free)
    return all(value == given or PLACEHOLDER in str(given) for value, given in told)
