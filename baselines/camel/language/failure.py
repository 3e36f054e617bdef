"""How a program ends early: by an error of its own, or by a call that may not be made."""

from __future__ import annotations

import ast

from baselines.flow.label import FROM_USER, FlowLabel


class ProgramError(Exception):
    """An error of the program, for the model that wrote it.

    Args:
        kind: The name of the exception's class.
        text: What went wrong. Only shown if `label` is trusted.
        label: The label of everything the text was made of.
    """

    def __init__(self, kind: str, text: str, label: FlowLabel = FROM_USER) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.label = kind, text, label
        self.node: ast.AST | None = None
        """Where it happened: the innermost node."""

    def at_node(self, node: ast.AST) -> ProgramError:
        """Itself, placed at a node unless it has a place."""
        if self.node is None and hasattr(node, "lineno"):
            self.node = node
        return self

    def with_label(self, label: FlowLabel) -> ProgramError:
        """Itself, with a label joined to its own."""
        self.label = self.label | label
        return self


class CallDenied(Exception):
    """A policy does not allow a call: the rule, without a value. The program ends; its writer is not told."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"{tool}: {reason}")
        self.tool, self.reason = tool, reason


def unsupported_error(what: str) -> ProgramError:
    """The error of a construct that the language does not have."""
    return ProgramError("SyntaxError", f"{what} not supported.")
