"""`reads_that_break`: tools that take nothing, yet spoil the task for whoever looks first."""

from __future__ import annotations

from agentdojo.functions_runtime import FunctionCall

from agentsys.audit.static.audited_task import Subject


def reads_that_break(subject: Subject) -> tuple[str, ...]:
    """Names of the argument-free tools whose one call before the ground truth makes the check fail.

    Empty where the ground truth alone does not pass.
    """
    if not subject.passes:
        return ()
    free = [tool.name for tool in subject.stage.suite.tools if not tool.parameters.model_fields]
    return tuple(name for name in free if not _passes_after(subject, name))


def _passes_after(subject: Subject, tool: str) -> bool:
    first = FunctionCall(function=tool, args={})
    return subject.accepts([first, *subject.calls], strict=False) is True
