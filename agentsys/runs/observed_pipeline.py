"""`ObservedPipeline`: one case's pipeline, run once per turn of its user, with a root span per attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.abilities import UserTurns
from agentsys.benchmarks.traced_tools import book_runs_on
from agentsys.errors import ConfigError
from agentsys.models.chat import ModelCodeFailed, ModelError, user
from agentsys.models.pipeline_elements import (
    ElementSequence,
    LoopState,
    LoopStep,
    QueryResult,
    is_element_sequence,
)
from agentsys.models.trace import Span, Tracer


class PipelineFailed(Exception):
    """A defense's own code raised; the cause is chained."""


MAX_TURNS = 100
"""Turns of a user after which a case ends in an error: a user who never stops would cost without end."""

TURN_SPAN = "turn"
"""Kind of the span around the pipeline's work on each turn of the user but the first."""


class ObservedPipeline(BasePipelineElement):  # type: ignore[misc]
    """Runs a defense's pipeline and keeps what it returned.

    AgentDojo runs a pipeline up to three times when its last message is empty, on the environment as
    the previous run left it; each run is an attempt with a root span of kind `run`. Where the user says
    more than the task, an attempt is the whole conversation: the pipeline is run once for every turn of
    the user, with the turn as its query and all messages so far.

    Args:
        pipeline: The defense's pipeline.
        tracer: The case's trace.
        user: Makes the user of one attempt; None: the user says the task and nothing else.
    """

    def __init__(
        self, pipeline: BasePipelineElement, tracer: Tracer, user: Callable[[], UserTurns] | None = None
    ) -> None:
        self.pipeline = pipeline
        self.tracer = tracer
        self.user = user
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

        AgentDojo's checks read the last message, thoughts and all; they are given what was said alone.

        Raises:
            AbortAgentError: As the pipeline does; AgentDojo scores the messages it carries.
            ModelError, ModelCodeFailed, ConfigError: As the pipeline does.
            PipelineFailed: If it raised anything else.
        """
        asked = query, runtime, env, list(messages), extra_args or {}
        self.tracer.attempt = self.attempts
        self.attempts += 1
        talker = None if self.user is None else self.user()
        with self.tracer.span("run") as root:
            try:
                result = self._run_turn(root, self.pipeline, asked)
                if talker is not None:
                    result = self._run_user_turns(root, talker, asked[1], result)
                return (*result[:3], _drop_thoughts(result[3]), result[4])
            except AbortAgentError as abort:
                root.messages = self.messages = abort.messages
                self.environment = abort.task_environment
                root.decision = {**root.decision, "aborted": str(abort)}
                raise

    def _run_user_turns(
        self, root: Span, talker: UserTurns, runtime: FunctionsRuntime, result: QueryResult
    ) -> QueryResult:
        """The user's further turns, until the user has nothing more to say.

        Each begins with all tools, whichever a defense kept for the turn before.
        """
        pipeline = continue_pipeline(self.pipeline)
        root.decision = {"turns": 1}
        while (said := talker.next_turn(result[3])) is not None:
            number = root.decision["turns"] + 1
            if number > MAX_TURNS:
                raise EndlessUser(f"the user of the case went on after {MAX_TURNS} turns")
            root.decision = {"turns": number}
            with self.tracer.span(TURN_SPAN, str(number)):
                result = self._run_turn(root, pipeline, (said, runtime, *result[2:]))
        return result

    def _run_turn(self, root: Span, pipeline: BasePipelineElement, asked: QueryResult) -> QueryResult:
        """The pipeline's work on one turn of the user, added to what is known of the attempt."""
        try:
            with book_runs_on(asked[2], self.tracer):
                result: QueryResult = pipeline.query(*asked)
        except (AbortAgentError, ModelError, ModelCodeFailed, ConfigError):
            raise
        except (Exception, SystemExit) as error:
            raise PipelineFailed(f"{type(error).__name__}: {error}") from error
        root.messages = self.messages = result[3]
        self.environment = result[2]
        return result


def _drop_thoughts(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """The conversation, its last message less a model's thoughts; one of thoughts alone has no content."""
    last = messages[-1] if messages else None
    if last is None or last["role"] != "assistant":
        return messages
    said = [block for block in last["content"] or () if block["type"] == "text"]
    if len(said) == len(last["content"] or ()):
        return messages
    return [*messages[:-1], {**last, "content": said or None}]


class EndlessUser(Exception):
    """A benchmark's user never stops talking."""


def continue_pipeline(pipeline: BasePipelineElement) -> BasePipelineElement:
    """The pipeline as it takes up a conversation that has begun.

    AgentDojo's `SystemMessage` refuses such a conversation (0.1.35), and its `InitQuery` warns about it, so
    the first is left out and the second replaced. Elements of other classes are given the conversation as
    it is, and add the user's words or have `InitQuery` do so.
    """
    if not any(map(is_element_sequence, type(pipeline).__mro__)):
        return pipeline
    kept = [element for element in pipeline.elements if not isinstance(element, SystemMessage)]
    return ElementSequence(
        [_AppendUserTurn() if isinstance(one, InitQuery) else one for one in kept], pipeline.name
    )


class _AppendUserTurn(LoopStep):
    """Adds the query to the conversation, wherever that stands."""

    def step(self, at: LoopState) -> LoopState:
        return at.with_messages(user(at.query))
