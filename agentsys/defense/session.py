"""`Session`: what all agents of one run of the pipeline share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment

from agentsys.defense.call_trace import CallTrace, TracedCall
from agentsys.defense.intent import tools_with_intent
from agentsys.defense.privileges import Labels, Privilege, PrivilegeBook
from agentsys.defense.settings import Settings
from agentsys.defense.validator import validate
from agentsys.models.chat import ChatModel, ToolSpec
from agentsys.models.tools import tool_specs


@dataclass
class Session:
    """One run of the pipeline. Made afresh in each `query`, so nothing is carried over to a second one."""

    model: ChatModel
    settings: Settings
    book: PrivilegeBook
    query: str
    """The user's request: for the main agent and the validator, never for a worker."""
    runtime: FunctionsRuntime
    env: TaskEnvironment
    trace: CallTrace = field(default_factory=CallTrace)

    @cached_property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools as isolated agents see them, each with an intent."""
        return tools_with_intent(list(self.runtime.functions.values()))

    @cached_property
    def plain_tools(self) -> Sequence[ToolSpec]:
        """The tools as they are."""
        return tool_specs(self.runtime.functions.values())

    @cached_property
    def labels(self) -> Labels:
        """Each tool's privilege. The model is asked for the whole toolset when it first matters."""
        return self.book.labels(self.model, self.plain_tools)

    def allows(self, call: TracedCall, earlier: CallTrace | None = None) -> bool:
        """Whether a call may run: reading always, a command if the validator agrees.

        Args:
            call: The proposed call.
            earlier: The calls before it, where they are not the trace (not all have run yet).
        """
        if self.labels[call.tool] is Privilege.QUERY:
            return True
        return validate(self.model, self.query, earlier or self.trace, call).allow
