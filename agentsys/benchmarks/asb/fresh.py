"""`FreshEachRun`: every run of the pipeline begins in an unchanged world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.benchmarks.asb.environment import ASBEnvironment
from agentsys.benchmarks.asb.replies import start_counting
from agentsys.models.element import QueryResult


class FreshEachRun(BasePipelineElement):  # type: ignore[misc]
    """Forgets the calls of a run that ended without an answer.

    AgentDojo runs a pipeline again, up to three times, when its last message is empty, on the
    environment as the run before left it (agentdojo 0.1.35): the calls would be counted anew each time.

    Args:
        pipeline: The pipeline to run.
    """

    def __init__(self, pipeline: BasePipelineElement) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """One run.

        Raises:
            Exception: What the pipeline raises, unchanged.
        """
        if isinstance(env, ASBEnvironment):
            env.uses.clear()
            start_counting()
        result: QueryResult = self.pipeline.query(query, runtime, env, list(messages), extra_args or {})
        return result
