"""`PromptArmor`: the plain agent whose results a guard model has looked through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from baselines.defense_bases import RoleDefense
from baselines.promptarmor.armor_guard import ARMOR_CONTRACT, QUESTIONS, ROLES, ArmorGuard, ArmorOptions
from baselines.tool_boundary.boundary_filter import BoundaryDefense, BoundaryFilter
from baselines.tool_boundary.result_rewriter import EMPTIED, WITHHELD


class PromptArmor(BoundaryDefense, RoleDefense):
    """Detection and removal of injections with one question per result.

    Args:
        name: The defense's name in configs, records and tables.
        removal: `fuzzy` (the quoted words in order), `exact` (letter by letter) or `withhold` (the whole
            result).
        gap: Most characters between two neighbouring words of a fuzzy match.
        unit: What is asked about: the whole `result`, or each of its `strings`.
        on_unmatched: A Yes whose quotation stands nowhere: `withhold` the result or `keep` it.
        on_unreadable: The same where no reply could be read.
        retries: How often the guard is asked again where its reply cannot be read.
        prompt: The question: `short`, or `defined`, which says what counts as an injection.
        delimit: Whether the data stand between marks, which the published form does without.
        max_tokens: Most tokens of a reply; one that uses them up was cut and counts as unreadable. None:
            the model's own bound.
        seed: What marks depend on; a run fills in its own.

    Source: Shi et al., arXiv 2507.15219.
    """

    roles = ROLES

    def __init__(self, name: str = "promptarmor", *, seed: int | None = None, **options: Any) -> None:
        self.name = name
        self.options = check_options(ArmorOptions, name, options, seed=seed or 0)

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The guard between the tools and the agent."""
        return [ArmorGuard(model, self.options)]

    def description(self) -> str:
        """What the guard is asked, and what becomes of what it quotes."""
        options = self.options
        unit = {"result": "each tool result", "strings": "each string of a tool result"}[options.unit]
        removal = {
            "fuzzy": "What it quotes is cut out of the result wherever its words stand in order",
            "exact": "What it quotes is cut out of the result where it stands letter by letter",
            "withhold": "A notice takes the place of a result in which it finds one",
        }[options.removal]
        doubt = {"withhold": "the result is withheld", "keep": "the result passes as it is"}
        return (
            "One agent reads the request and its tool results in one conversation. Before it reads a result,"
            f" a guard model is shown {unit} by itself, error texts included, and asked whether it holds a"
            f" prompt injection. {removal}, and the agent goes on with what is left. Where a quotation stands"
            f" nowhere, {doubt[options.on_unmatched]}; where no reply can be read,"
            f" {doubt[options.on_unreadable]}. The guard knows neither the request nor the call, and it reads"
            " the result raw. No call is ever blocked."
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        notices = {"withheld": WITHHELD, "emptied": EMPTIED}
        guard = replace(ARMOR_CONTRACT, task=QUESTIONS[self.options.prompt])
        return {"guard_question": guard.prompt, **notices}
