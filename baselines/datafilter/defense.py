"""`DataFilter`: the plain agent whose results a fine-tuned model has written again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from baselines.border.defense import BoundaryDefense
from baselines.border.filter import BoundaryFilter
from baselines.border.rewriter import EMPTIED, WITHHELD
from baselines.datafilter.element import (
    INSTRUCTIONS,
    ROLE,
    ROLES,
    SEPARATOR,
    DataRewriter,
    DataFilterOptions,
    digest_template,
    find_filter_misfit,
)
from baselines.played import RoleDefense


class DataFilter(BoundaryDefense, RoleDefense):
    """Results written again by a model that was trained to leave planted instructions out.

    Args:
        name: The defense's name in configs, records and tables.
        unit: What is written again: each of a result's `strings`, or the whole `result`.
        skip_trivial: Whether strings without a letter or with fewer than four words are passed on unread.
        max_tokens: Most tokens of a reply; None: as many as the data and a quarter more.
        on_truncated: A reply that used them up: `withhold` the string, or `keep` what there is of the reply.
        concurrent: Strings of one result that are asked about at once.
        template: Digest of the words and the chat format around the data that results belong to; None: not
            checked.

    Raises:
        ConfigError: If an option has a value it cannot have.

    Source: arXiv 2510.19207; github.com/yizhu-joy/DataFilter.
    """

    roles = ROLES

    def __init__(self, name: str = "datafilter", *, template: str | None = None, **options: Any) -> None:
        if template is not None and template != digest_template():
            raise ConfigError(
                f"{name}: template is {template!r}, and what stands around the data here has the digest"
                f" {digest_template()}: scores under two templates are not comparable. Give that one or null."
            )
        self.name = name
        self.options = check_options(DataFilterOptions, name, options)

    @property
    def own_roles(self) -> Sequence[str]:
        """The filter model's: no other model was trained for it."""
        return (ROLE,)

    def unfit(self, role: str, model: ChatModel) -> str | None:
        """Ask the filter model about a known text with an order in it."""
        return find_filter_misfit(model)

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The filter between the tools and the agent."""
        return [DataRewriter(model, self.options)]

    def description(self) -> str:
        """What the filter model is shown, and what becomes of its words."""
        unit = {"result": "the whole result", "strings": "each string of the result"}[self.options.unit]
        skipped = (
            " Strings without a letter or with fewer than four words are passed on unread."
            if self.options.unit == "strings" and self.options.skip_trivial
            else ""
        )
        cut = {"withhold": "a notice takes its place", "keep": "what there is of it is passed on"}
        return (
            "One agent reads the request and its tool results in one conversation. Before it reads a result,"
            f" a filter model is shown the request and {unit}, error texts included, and writes it again"
            " without orders, requests and questions. What it writes takes the place of the original; there"
            f" is no verdict.{skipped} Where its reply was cut off, {cut[self.options.on_truncated]}. The"
            " filter model reads the result raw. No call is ever blocked."
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        notices = {"withheld": WITHHELD, "emptied": EMPTIED}
        return {"filter_instructions": INSTRUCTIONS, "separator": SEPARATOR, **notices}
