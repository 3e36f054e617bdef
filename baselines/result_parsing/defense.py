"""`ToolResultParsing`: the plain agent, which reads extracted data in place of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from baselines.border.defense import BoundaryDefense
from baselines.border.filter import BoundaryFilter
from baselines.border.rewriter import EMPTIED, WITHHELD
from baselines.played import RoleDefense
from baselines.result_parsing import prompts
from baselines.result_parsing.checker import ToolCallCheck
from baselines.result_parsing.parser import ParsingOptions, ResultParser
from baselines.result_parsing.simulated import ROLES

STAGES = ("parse_data", "parse_full", "check_tool")


class ToolResultParsing(BoundaryDefense, RoleDefense):
    """Results pass some stages of parsing and checking, in order.

    Args:
        name: The defense's name in configs, records and tables.
        stages: `parse_data`, `parse_full` and `check_tool`, each at most once; at least one.
        retries: How often a model is asked again where its reply cannot be read.
        on_unreadable: What follows then: `withhold` the result or `keep` it.
        show_expectation: Whether the agent reads the expectation along with the data.
        strict_values: Whether values that do not stand in the result are replaced by null.
        enforce: Whether values of another type than declared are.
        check_tool_action: What follows a triggered call: `remove` the words, or `reject` the result.
        check_rounds: How often a result is checked again after something was taken out.
        seed: What the marks depend on; a run fills in its own.

    Raises:
        ConfigError: If an option has a value it cannot have.

    Source: arXiv 2601.04795.
    """

    roles = ROLES

    def __init__(
        self,
        name: str = "tool_result_parsing",
        *,
        stages: Sequence[str] = ("parse_data", "check_tool"),
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(stages, str) or not stages or len(set(stages)) < len(stages):
            raise ConfigError(f"{name}: stages is {stages!r}; give a list of {', '.join(STAGES)}, each once.")
        for stage in stages:
            if stage not in STAGES:
                raise ConfigError(unknown_name(f"{name} stage", str(stage), STAGES))
        self.name = name
        self.stages = tuple(stages)
        self.options = check_options(ParsingOptions, name, options, seed=seed or 0)

    @property
    def needs_conversation(self) -> bool:
        """Whether expectations are declared with the conversation."""
        return "parse_full" in self.stages

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The stages, in order."""
        return [self._build_stage(stage, model) for stage in self.stages]

    def _build_stage(self, stage: str, model: ChatModel) -> BoundaryFilter:
        if stage == "check_tool":
            return ToolCallCheck(model, self.options)
        return ResultParser(model, self.options, conversation=stage == "parse_full")

    def description(self) -> str:
        """Which stages a result passes, and what each does."""
        parse = (
            "Before a call runs, a model that is shown {shown} states which data it expects back and of which"
            " type; afterwards it is shown the result and asked for these data, which alone go on."
        )
        action = {
            "remove": "the words that caused it are taken out",
            "reject": "a notice takes the result's place",
        }
        told = {
            "parse_data": f"Parsing: {parse.format(shown='the call and the tool, but not the request,')}",
            "parse_full": f"Parsing: {parse.format(shown='the call and the whole conversation')}",
            "check_tool": "Checking: a model is given the result alone, with the tools and no warning, and if"
            f" it makes a call, {action[self.options.check_tool_action]}; the call is never run.",
        }
        unread = {"withhold": "the result is withheld", "keep": "the result goes on as it is"}
        return " ".join(
            [
                "One agent reads the request, and of tool results what some stages leave of them, in one"
                " conversation.",
                *(told[stage] for stage in self.stages),
                f"Stages act in the order {', '.join(self.stages)}, on error texts as well.",
                f"Where no reply can be read, {unread[self.options.on_unreadable]}.",
                "The models asked read results raw, and declared types are "
                f"{'enforced' if self.options.enforce else 'not enforced'}.",
                "No worker is isolated and no call is checked before it runs.",
            ]
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        parsing = {
            "expectation": prompts.EXPECTATION,
            "conversation": prompts.CONVERSATION,
            "extraction": prompts.EXTRACTION,
            "failed": prompts.FAILED,
        }
        checking = {"removal": prompts.REMOVAL, "rejected": prompts.REJECTED}
        common = {"marks": prompts.MARKS, "withheld": WITHHELD, "emptied": EMPTIED}
        parses = {"parse_data", "parse_full"} & set(self.stages)
        return (parsing if parses else {}) | (checking if "check_tool" in self.stages else {}) | common
