"""`ObservedPipeline`: runs a defense's pipeline, all user turns included, and keeps its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import EmptyEnv, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatMessage

from agentsys.benchmarks.scoring import take_judged_messages
from agentsys.benchmarks.traced_tools import book_runs_on
from agentsys.contracts import UserTurns
from agentsys.errors import ConfigError
from agentsys.models.chat import ModelCodeFailed, ModelError, list_code_errors, user
from agentsys.models.pipeline_elements import (
    ElementSequence,
    LoopState,
    LoopStep,
    QueryResult,
    is_element_sequence,
)
from agentsys.models.trace import Span, Tracer

_Made = TypeVar("_Made")


class PipelineFailed(Exception):
    """A defense's own code raised; the cause is chained."""


def run_foreign_code(work: Callable[[], _Made], failure: type[Exception], *let_by: type[Exception]) -> _Made:
    """Run code of a defense or an attack.

    Args:
        work: Calls that code.
        failure: Raised, with the cause chained, in place of any exception that is not let through.
        let_by: Exceptions let through besides errors of models and ConfigError.
    """
    passes: tuple[type[Exception], ...] = (ModelError, ModelCodeFailed, ConfigError, *let_by)
    try:
        return work()
    except passes:
        raise
    except list_code_errors() as error:
        raise failure(f"{type(error).__name__}: {error}") from error


MAX_TURNS = 100
"""Most user turns of a case; after that it ends in an error, as a user who never stops would cost without end."""

TURN_SPAN = "turn"
"""Kind of the span around each user turn after the first."""


class ObservedPipeline(BasePipelineElement):  # type: ignore[misc]
    """Runs a defense's pipeline and keeps its result.

    AgentDojo runs a pipeline up to three times if its last message is empty, on the environment as the previous run
    left it; each run is an attempt with a root span of kind `run`. With several user turns an attempt is the whole
    conversation: the pipeline is run once per turn, with the turn as its query and all messages so far.

    Args:
        pipeline: The defense's pipeline.
        tracer: The case's trace.
        user: Makes the simulated user of one attempt; None: the task is the only user turn.
        judges_thoughts: True if checks see the last message's thoughts, too.
    """

    def __init__(
        self,
        pipeline: BasePipelineElement,
        tracer: Tracer,
        user: Callable[[], UserTurns | None],
        *,
        judges_thoughts: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.tracer = tracer
        self.user = user
        self.judges_thoughts = judges_thoughts
        self.name = pipeline.name
        self.attempts = 0
        self.messages: Sequence[ChatMessage] = ()
        self.environment: TaskEnvironment | None = None

    @property
    def judged_messages(self) -> Sequence[ChatMessage]:
        """The messages of the last attempt that the checks see."""
        return take_judged_messages(self.messages, with_thoughts=self.judges_thoughts)

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Run one attempt.

        Raises:
            AbortAgentError: As the pipeline does; AgentDojo scores the messages it carries.
            ModelError, ModelCodeFailed, ConfigError: As the pipeline does.
            PipelineFailed: If the pipeline raised anything else.
        """
        query_args = query, runtime, env, list(messages), extra_args or {}
        self.tracer.attempt = self.attempts
        self.attempts += 1
        user_simulator = self.user()
        with self.tracer.span("run") as root:
            try:
                result = self._run_turn(root, self.pipeline, query_args)
                if user_simulator is not None:
                    result = self._run_user_turns(root, user_simulator, query_args[1], result)
                return (*result[:3], self.judged_messages, result[4])
            except AbortAgentError as abort:
                root.messages = self.messages = abort.messages
                self.environment = abort.task_environment
                root.decision = {**root.decision, "aborted": str(abort)}
                raise

    def _run_user_turns(
        self, root: Span, user_simulator: UserTurns, runtime: FunctionsRuntime, result: QueryResult
    ) -> QueryResult:
        """Run the user's further turns, until there are none.

        Each turn begins with all tools, even if a defense removed some in the turn before.
        """
        pipeline = continue_pipeline(self.pipeline)
        root.decision = {"turns": 1}
        while (utterance := user_simulator.next_turn(result[3])) is not None:
            number = root.decision["turns"] + 1
            if number > MAX_TURNS:
                raise EndlessUser(f"the user of the case went on after {MAX_TURNS} turns")
            root.decision = {"turns": number}
            with self.tracer.span(TURN_SPAN, str(number)):
                result = self._run_turn(root, pipeline, (utterance, runtime, *result[2:]))
        return result

    def _run_turn(self, root: Span, pipeline: BasePipelineElement, query_args: QueryResult) -> QueryResult:
        """Run the pipeline on one user turn; its tools record in the trace."""
        with book_runs_on(query_args[2], self.tracer):
            result: QueryResult = run_foreign_code(
                lambda: pipeline.query(*query_args), PipelineFailed, AbortAgentError
            )
        root.messages = self.messages = result[3]
        self.environment = result[2]
        return result


class EndlessUser(Exception):
    """A benchmark's simulated user exceeded MAX_TURNS."""


def continue_pipeline(
    pipeline: BasePipelineElement, earlier: Sequence[ChatMessage] = ()
) -> BasePipelineElement:
    """Adapt a pipeline to continue a conversation; `earlier` messages, if any, are inserted before the user's.

    AgentDojo's `SystemMessage` refuses a conversation that has begun (0.1.35), and its `InitQuery` warns about it, so
    the first is removed and the second replaced. Elements of other classes get the conversation as it is, and add
    the user's words themselves or through `InitQuery`.
    """
    if not any(map(is_element_sequence, type(pipeline).__mro__)):
        return pipeline
    elements = [
        _AppendUserTurn(earlier) if isinstance(element, InitQuery) else element
        for element in pipeline.elements
        if earlier or not isinstance(element, SystemMessage)
    ]
    return ElementSequence(elements, pipeline.name)


class _AppendUserTurn(LoopStep):
    def __init__(self, earlier: Sequence[ChatMessage]) -> None:
        self._earlier = earlier

    def step(self, at: LoopState) -> LoopState:
        return at.with_messages(*self._earlier, user(at.query))
