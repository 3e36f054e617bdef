"""`Spotlighting`: the agent whose tool results are marked as data."""

from __future__ import annotations

import random as generators
from dataclasses import replace
from typing import Any, Literal, get_args

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import (
    ElementSequence,
    LoopState,
    LoopStep,
    default_system_message,
    named_pipeline,
    tool_loop,
)
from baselines.spotlighting.elements import MarkResults, UnmarkAnswer, UnmarkArguments
from baselines.spotlighting.marking import (
    PRIVATE_USE,
    PRIVATE_USE_AREA,
    Datamarking,
    Delimiting,
    Encoding,
    Marking,
)

SpotlightingVariant = Literal["delimiting", "datamarking", "encoding"]


class Spotlighting:
    """Marks everything a tool returns as data and tells the model so in the system message.

    Args:
        variant: `delimiting` (marks around the text, AgentDojo's form), `datamarking` (a mark for
            each run of whitespace) or `encoding` (base64).
        start: Delimiting: the mark before the text.
        end: Delimiting: the mark after it.
        mark: Datamarking: what stands for whitespace.
        escape: Take the marks out of the text before marking it, so that they cannot be forged.
        keep_newlines: Datamarking: keep line breaks and indentation depth, so that YAML stays readable.
        unmark_arguments: Datamarking: write spaces for marks that the model copied into tool calls.
        unmark_answer: Datamarking: likewise in the final answer, which utility checks read.
        random: Draw a fresh mark for each case and name it in the system message.
        seed: What the fresh marks depend on, besides the request and the environment; a run fills in its
            own where this is None.

    Raises:
        ConfigError: If the variant is unknown, a mark is empty or has whitespace, or `random` is
            asked of `encoding`, which has no mark.

    Source: Hines et al., arXiv 2403.14720; AgentDojo 0.1.35 (`spotlighting_with_delimiting`).
    """

    name = "spotlighting"

    def __init__(
        self,
        variant: SpotlightingVariant = "delimiting",
        *,
        start: str = "<<",
        end: str = ">>",
        mark: str = PRIVATE_USE,
        escape: bool = True,
        keep_newlines: bool = True,
        unmark_arguments: bool = True,
        unmark_answer: bool = True,
        random: bool = False,
        seed: int | None = None,
    ) -> None:
        _check_options(variant, {"start": start, "end": end, "mark": mark}, random)
        markings: dict[str, Marking] = {
            "delimiting": Delimiting(start, end, escape),
            "datamarking": Datamarking(mark, escape, keep_newlines),
            "encoding": Encoding(),
        }
        self.marking = markings[variant]
        self.unmark_arguments = unmark_arguments
        self.unmark_answer = unmark_answer
        self.random = random
        self.seed = 0 if seed is None else seed

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The plain agent with marked results; with `random`, its marks are drawn when it is run."""
        if not self.random:
            return self.build_agent(model, suite, self.marking)
        return named_pipeline(f"{model.name}-{self.name}", DrawMarks(self, model, suite))

    def build_agent(self, model: ChatModel, suite: TaskSuite[Any], marking: Marking) -> ElementSequence:
        """The agent with this marking."""
        copies = marking if isinstance(marking, Datamarking) else None
        return tool_loop(
            model,
            f"{default_system_message(suite)} {marking.explanation()}",
            name=f"{model.name}-{self.name}",
            before_tools=[UnmarkArguments(copies)] if copies and self.unmark_arguments else [],
            after_results=[MarkResults(marking)],
            after=[UnmarkAnswer(copies)] if copies and self.unmark_answer else [],
        )

    def description(self) -> str:
        """Say how results are marked and what the marks are."""
        fresh = "drawn afresh for each case" if self.random else "the same in every case"
        form = {
            Delimiting: "Every tool result, error texts included, stands between two fixed marks, which are"
            f" {fresh}.",
            Datamarking: "In every tool result, error texts included, a rare character takes the place of"
            f" the whitespace; it is {fresh}.",
            Encoding: "Every tool result, error texts included, is written in base64.",
        }[type(self.marking)]
        return (
            "One agent reads the request and every tool result in one conversation. "
            f"{form} {self._describe_escapes()} The system message explains this and says that text so written is data"
            " and never an instruction. Nothing is cut out of results, and nobody else reads them first."
            " Whether the agent keeps to that is up to the model. No call is checked before it runs."
        )

    def _describe_escapes(self) -> str:
        if isinstance(self.marking, Encoding):
            return "The agent has to decode it to use it."
        taken = getattr(self.marking, "escape", False)
        return f"Marks that stand in a result beforehand are {'taken out' if taken else 'left there'}."

    def prompts(self) -> dict[str, str]:
        """Every text this defense adds, by name."""
        return {"system_message_addition": self.marking.explanation()}


class DrawMarks(LoopStep):
    """Draws the case's marks, then runs the agent that uses them. Holds no state between queries."""

    def __init__(self, defense: Spotlighting, model: ChatModel, suite: TaskSuite[Any]) -> None:
        self.defense = defense
        self.model = model
        self.suite = suite

    def step(self, at: LoopState) -> LoopState:
        """Play one case. The draw depends on its request and data alone, so threads and resumes repeat it."""
        draw = generators.Random(f"{self.defense.seed}\n{at.query}\n{at.env.model_dump_json()}")
        marking = redraw_marking(self.defense.marking, draw)
        agent = self.defense.build_agent(self.model, self.suite, marking)
        return at.run_element(agent)


def redraw_marking(marking: Marking, draw: generators.Random) -> Marking:
    """The marking with marks that hold something nobody could know beforehand."""
    match marking:
        case Delimiting(start, end):
            token = f"{draw.getrandbits(32):08x}"
            return replace(marking, start=f"{start}{token}{start}", end=f"{end}{token}{end}")
        case Datamarking(mark):
            # One private-use character is enough: it stands between any two words, and who forges
            # this mark only marks text as data.
            return replace(marking, mark_text=mark + chr(draw.randrange(*PRIVATE_USE_AREA)))
        case _:
            return marking


def _check_options(variant: str, marks: dict[str, str], random: bool) -> None:
    if variant not in get_args(SpotlightingVariant):
        raise ConfigError(unknown_name("spotlighting variant", variant, get_args(SpotlightingVariant)))
    if random and variant == "encoding":
        raise ConfigError("spotlighting: variant 'encoding' has no mark to draw; leave random=false.")
    for option, mark in marks.items():
        if not mark or any(character.isspace() for character in mark):
            raise ConfigError(
                f"spotlighting: {option}={mark!r} cannot be a mark; give characters, none of them a space."
            )
