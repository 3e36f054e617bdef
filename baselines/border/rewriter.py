"""`ResultRewriter`: a filter that reads tool results one by one and may write others in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from agentdojo.types import ChatToolResultMessage

from agentsys.models.providers.wire_parts import result_text
from agentsys.models.trace import current_tracer, span
from baselines.border.filter import BoundaryFilter, FilterTurn
from baselines.tool_results import replace_result_text

OnDoubt = Literal["withhold", "keep"]
"""What follows where a guard gave no answer that can be used."""

WITHHELD = "<withheld: this tool result could not be checked>"
"""Stands for a result whose guard gave no answer that could be used."""
EMPTIED = "<nothing is left of this tool result>"
"""Stands for a result of which everything was taken out: providers refuse an empty message."""


@dataclass(frozen=True)
class RewrittenResult:
    """What became of one result."""

    text: str
    """What the agent reads."""
    outcome: str
    """`clean`, `rewritten`, `withheld`, or a word of the filter's own for one of these."""
    asked: int = 0
    """Replies of guard models."""
    unreadable: int = 0
    """Those that could not be read."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the record keeps, JSON-ready."""
    flagged: bool | None = None
    """Whether the guard took the result for an injection; None: it gave no verdict, or has none to give."""


class ResultRewriter(BoundaryFilter):
    """Reads each result by itself; blank ones are passed on unread.

    What is read is the error text of a failed call, else its content: a tool's error may quote what an
    attacker wrote. Each result read leaves a span of kind `detector`.
    """

    name: ClassVar[str] = "rewriter"
    gives_verdicts: ClassVar[bool] = True
    """Whether it says of each result if it holds an injection; then its errors are counted."""

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Give what is to stand in place of a result's text, which is not blank.

        Raises:
            ModelError: If a model that was asked gave no reply.
        """
        raise NotImplementedError

    def filter_results(self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]) -> list[ChatToolResultMessage]:
        """Rewrite each result in order."""
        return [self._rewrite_one(turn, result) for result in results]

    def _rewrite_one(self, turn: FilterTurn, result: ChatToolResultMessage) -> ChatToolResultMessage:
        text = result_text(result)
        if not text.strip():
            return result
        with span("detector", result["tool_call"].function) as node:
            node.decision = {"filter": self.name}
            found = self.rewrite_result(turn, result, text)
            shown = found.text if found.text.strip() else EMPTIED
            node.decision |= {
                "outcome": found.outcome,
                "asked": found.asked,
                "unreadable": found.unreadable,
                "chars_in": len(text),
                "chars_out": len(found.text),
                **found.facts,
            }
            if shown != text:
                node.decision["raw"] = text
            if self.gives_verdicts:
                current_tracer().guard_judged(node, text, found.flagged)
        return result if shown == text else replace_result_text(result, shown)


def unreadable_result(
    text: str, doubt: str, asked: int, unreadable: int, facts: Mapping[str, Any] | None = None
) -> RewrittenResult:
    """A result about which a guard gave no answer that could be used: kept if the option says so."""
    kept = doubt == "keep"
    outcome = "unreadable" if kept else "withheld"
    return RewrittenResult(text if kept else WITHHELD, outcome, asked, unreadable, facts or {})
