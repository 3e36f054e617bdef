"""`Camel`: a program written before anything is seen, run on values that know where they come from."""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, named_pipeline
from baselines.camel.agent import CamelAgent, CamelSettings
from baselines.camel.prompts import PROMPTS
from baselines.camel.simulated import ROLES
from baselines.played import AgentDefense


class Camel(AgentDefense):
    """CaMeL: privileged planner, interpreter with capabilities, quarantined model, policies.

    Args:
        name: The name in records and tables.
        mode: `normal`: control dependencies count at calls; `strict`: they are joined into every assigned
            value too, and what the quarantined model has read stays one.
        enforcement: `live`: policies judge each call as it is made. `replay`: the task is first run on a copy
            of the environment without policies, and what was recorded is then run again with them, as in the
            published numbers. `off`: no policies.
        as_published: Keep the slips of the reference's policies and labels that numbers depend on.
        attempts: Most programs for one task.
        empty_replies: Most questions for a program that is not empty.
        query_attempts: Most questions to the quarantined model for one answer.

    Raises:
        ConfigError: If `mode` or `enforcement` is unknown, or a limit is not positive.

    Source: Debenedetti et al., arXiv 2503.18813.
    """

    roles = ROLES
    texts = PROMPTS

    whole_program = True

    def __init__(self, name: str = "camel", **options: Any) -> None:
        self.name = name
        self.settings = check_options(CamelSettings, name, options)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case. The planner's conversation is its own; the one returned is a record."""
        agent = CamelAgent(model, self.settings, suite.name, default_system_message(suite))
        return named_pipeline(f"{model.name}-{self.name}", InitQuery(), agent)

    def description(self) -> str:
        """What planner, quarantined model and policies see, and what ends a run."""
        settings = self.settings
        return " ".join(
            [
                "A planner model sees the request and the tools, and writes a program before anything is"
                " read.",
                "It never sees what a tool returns: of a program that fails it learns the line, the kind of"
                " error, and the text only if no tool had a part in it.",
                "An interpreter runs the program on values that know where they came from and who may read"
                " them.",
                "A quarantined model without tools turns text into values of a declared type, which stay"
                " untrusted.",
                *_describe_policies(settings),
                f"After {settings.attempts} failed programs the task ends without an answer.",
            ]
        )


def _describe_policies(settings: CamelSettings) -> list[str]:
    if settings.enforcement == "off":
        return ["No policy judges the calls."]
    control = (
        "What a branch or loop depended on counts for everything assigned in it and for the calls in it."
        if settings.mode == "strict"
        else "What a branch or loop depended on counts for the calls in it, not for what is assigned in it."
    )
    sentences = [
        "Before a tool that changes something runs, a policy of the suite looks at where its arguments came"
        " from and who may read them; a call it does not allow ends the task.",
        control,
    ]
    if settings.enforcement == "replay":
        sentences.append("Policies look at a second run of programs that were recorded without them.")
    if settings.as_published:
        sentences.append("Policies and labels keep the slips of the reference implementation.")
    return sentences
