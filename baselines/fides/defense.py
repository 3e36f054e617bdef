"""`Fides`: an ordinary tool loop with labels, in which untrusted values are variables."""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import default_system_message, named_pipeline
from baselines.fides.agent import FidesAgent, FidesSettings
from baselines.fides.own_tools import INSPECT, QUERY
from baselines.fides.prompts import PLANNER, PROMPTS, VARIABLES_ONLY
from baselines.fides.simulated import ROLES
from baselines.played import AgentDefense


class Fides(AgentDefense):
    """FIDES: labels on messages and arguments, variables in place of untrusted values, policies on calls.

    Args:
        name: The name in records and tables.
        planner: `fides`: untrusted values are variables, which can be asked about and looked at. `variables`:
            all values are variables, and there is neither. `basic`: everything is read.
        policies: Whether calls are judged.
        labels: `benchmark`: untrusted is what the benchmark's injections can be written to, as published.
            `strict`: what somebody other than the user can have written.
        hide: `integrity`: values that are less trusted become variables. `both`: those that fewer may read,
            too.
        max_rounds: Most rounds of calls.
        query_attempts: Most questions to the quarantined model for one answer.

    Raises:
        ConfigError: If a word is unknown, or a limit is not positive.

    Source: Costa et al., arXiv 2505.23643.
    """

    roles = ROLES
    texts = PROMPTS

    def __init__(self, name: str = "fides", **options: Any) -> None:
        self.name = name
        self.settings = check_options(FidesSettings, name, options)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """The agent for one case."""
        told = [default_system_message(suite), *self._planner_sentences()]
        agent = FidesAgent(model, self.settings, suite.name)
        name = f"{model.name}-{self.name}"
        return named_pipeline(name, SystemMessage("\n\n".join(told)), InitQuery(), agent)

    def _planner_sentences(self) -> list[str]:
        if self.settings.planner == "basic":
            return []
        text = PLANNER if self.settings.planner == "fides" else VARIABLES_ONLY
        return [text.format(query=QUERY, inspect=INSPECT)]

    def description(self) -> str:
        """What becomes a variable, who reads what, and which calls are refused."""
        settings = self.settings
        return " ".join(
            [
                "One agent works through the request in an ordinary tool loop, in which the conversation,"
                " every"
                " argument and every field of a result have a label: who had a part in it, and who may"
                " read it.",
                *_describe_labels(settings),
                *_describe_planner(settings),
                *_describe_policies(settings),
                f"It ends after {settings.max_rounds} rounds of calls.",
            ]
        )


def _describe_labels(settings: FidesSettings) -> list[str]:
    if settings.labels == "strict":
        return ["A result is untrusted if somebody other than the user can have written it."]
    return ["A field is untrusted if the benchmark's injections can be written to it."]


def _describe_planner(settings: FidesSettings) -> list[str]:
    if settings.planner == "basic":
        return ["The agent reads all results, and the conversation is then as untrusted as what it has read."]
    if settings.planner == "variables":
        return [
            "Every value in a result is kept in a variable that the agent can only name.",
            "Names are replaced by values when a call runs and in the final answer.",
        ]
    also = " or that others may not read" if settings.hide == "both" else ""
    return [
        f"A value that is less trusted than the conversation{also} is kept in a variable, and the agent reads"
        " its name.",
        "Names are replaced by values when a call runs and in the final answer.",
        "A quarantined model without tools answers questions about variables with a value of a declared type,"
        " which becomes a variable too.",
        "The agent may look at values, and the conversation is then as untrusted as they are.",
    ]


def _describe_policies(settings: FidesSettings) -> list[str]:
    if not settings.policies:
        return ["No policy judges the calls."]
    return [
        "A call that changes something is refused if untrusted data had a part in its being made; where it"
        " only sends something, it may run if everybody it reaches may read all of it and it has no untrusted"
        " link.",
        "The agent is told which rule refused a call, and goes on.",
    ]
