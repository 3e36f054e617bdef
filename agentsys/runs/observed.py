"""`Observed`: the pipeline of one case with a root span around each time AgentDojo runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.errors import ConfigError
from agentsys.models.element import QueryResult
from agentsys.models.errors import ModelCodeFailed, ModelError
from agentsys.models.trace import Tracer


class PipelineFailed(Exception):
    """A defense's own code raised; the cause is chained."""


class Observed(BasePipelineElement):  # type: ignore[misc]
    """Runs a defense's pipeline and keeps what it returned.

    AgentDojo runs a pipeline up to three times when its last message is empty, on the environment as
    the previous run left it; each run is an attempt with a root span of kind `run`.

    Args:
        pipeline: The defense's pipeline.
        tracer: The case's trace.
    """

    def __init__(self, pipeline: BasePipelineElement, tracer: Tracer) -> None:
        self.pipeline = pipeline
        self.tracer = tracer
        self.name = pipeline.name
        self.attempts = 0
        self.messages: Sequence[ChatMessage] = ()
        self.environment: TaskEnvironment | None = None

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """One attempt.

        Raises:
            AbortAgentError: As the pipeline does; AgentDojo scores the messages it carries.
            ModelError, ModelCodeFailed, ConfigError: As the pipeline does.
            PipelineFailed: If it raised anything else.
        """
        self.tracer.attempt = self.attempts
        self.attempts += 1
        with self.tracer.span("run") as root:
            try:
                result: QueryResult = self.pipeline.query(
                    query, runtime, env, list(messages), extra_args or {}
                )
            except AbortAgentError as abort:
                root.messages = self.messages = abort.messages
                self.environment = abort.task_environment
                root.decision = {"aborted": str(abort)}
                raise
            except (ModelError, ModelCodeFailed, ConfigError):
                raise
            except (Exception, SystemExit) as error:
                raise PipelineFailed(f"{type(error).__name__}: {error}") from error
            root.messages = self.messages = result[3]
            self.environment = result[2]
            return result
