"""`SpotlightingCompat`: AgentDojo's own spotlighting pipeline, in its own words, around our model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import ModelElement, default_system_message

if TYPE_CHECKING:
    from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline

_AGENTDOJO_NAME = "spotlighting_with_delimiting"
"""AgentDojo's name of it."""


class SpotlightingCompat:
    """The installed AgentDojo's own pipeline of this name, for comparison with published numbers.

    Its sentence in the system message is taken from the package when it is needed. It differs from
    `spotlighting` in these words, and in that marks in a result stay and error texts are not marked.

    Source: AgentDojo 0.1.35 (`spotlighting_with_delimiting`).
    """

    name = "spotlighting_compat"

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """AgentDojo's pipeline with our model in its model's place."""
        return _build_agentdojo_pipeline(ModelElement(model), default_system_message(suite), f"{model.name}-{self.name}")

    def description(self) -> str:
        """Say how results are marked, and by whose words."""
        return (
            "One agent reads the request and every tool result in one conversation. Every tool result"
            " stands between two fixed marks, which are the same in every case. Error texts are not marked."
            " Marks that stand in a result beforehand are left there. The system message says what the"
            " marks are and that instructions between them are never to be obeyed, in AgentDojo's words."
            " Nothing is cut out of results, and nobody else reads them first. No call is checked before"
            " it runs."
        )

    def prompts(self) -> dict[str, str]:
        """The text that AgentDojo adds to the system message."""
        first = next(iter(_build_agentdojo_pipeline(InitQuery(), "", self.name).elements))
        assert isinstance(first, SystemMessage)
        return {"system_message_addition": first.system_message.strip()}


def _build_agentdojo_pipeline(model: BasePipelineElement, system_message: str, name: str) -> AgentPipeline:
    # Here, as it takes seconds.
    from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, PipelineConfig

    config = PipelineConfig(
        llm=model, model_id=None, defense=_AGENTDOJO_NAME, system_message_name=None, system_message=system_message
    )
    pipeline = AgentPipeline.from_config(config)
    pipeline.name = name
    return pipeline
