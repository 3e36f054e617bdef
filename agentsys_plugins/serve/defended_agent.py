"""`DefendedAgent`: a model with a defense around it, for conversations that are no cases."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import EmptyEnv, Function
from agentdojo.logging import LOGGER_STACK
from agentdojo.types import ChatMessage

from agentsys.contracts import Defense, Suite
from agentsys.errors import ConfigError
from agentsys.models.budget import RunBudgetReached, UsageLog
from agentsys.models.build_model import ModelStack
from agentsys.models.chat import (
    CLIENT_SUITE,
    ChatModel,
    ChatReply,
    ChatRequest,
    JsonSchema,
    ModelCodeFailed,
    ModelError,
    ModelWrapper,
    Scene,
    Usage,
    list_code_errors,
    system,
    text_of,
)
from agentsys.models.pipeline_elements import ASKED_AGAIN
from agentsys.models.trace import ACTING_ROLES, Tracer, use_tracer
from agentsys.runs.case_outcome import format_traceback
from agentsys.runs.observed_pipeline import continue_pipeline
from agentsys_plugins.serve.client_tools import ClientRuntime

_ANSWER_FORM = "Your answer, when you have it, is one JSON value of this schema and nothing else:"


class ConversationEnded(BaseException):
    """The conversation ends before its turn. A BaseException: no defense may take it for a tool's failure."""


class ClientSuite(Suite):
    """A client's tools and system message, as a defense is given them; no tasks, no environment."""

    def __init__(self, tools: Sequence[Function] = (), system_message: str = "") -> None:
        super().__init__(CLIENT_SUITE, EmptyEnv, list(tools))
        self.system_message = system_message


@dataclass
class Dialogue:
    """One request of the user and what came of it."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(12))
    """Its id, for the client's header and the record."""
    messages: Sequence[ChatMessage] = ()
    """The acting agent's context."""
    carried: Mapping[str, Any] = field(default_factory=dict)
    """What the pipeline left for being asked once more, as the values behind names."""
    tracer: Tracer = field(default_factory=Tracer)
    requests: list[str] = field(default_factory=list)
    """What the user said; more than one where the answer was asked for again."""
    error_kind: str | None = None
    """Why it cannot go on; None: it can."""
    error: str | None = None
    traceback: str | None = None
    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    duration_s: float = 0.0
    """Seconds that it took, waiting for the client's tools included."""

    @property
    def answer(self) -> str | None:
        """The agent's last words; None where it said none."""
        last = self.messages[-1] if self.messages else None
        return text_of(last) if last and last["role"] == "assistant" and last["content"] else None

    @property
    def usage(self) -> Usage:
        """Tokens so far, of all roles."""
        return sum((span.usage for span in self.tracer.spans), Usage())

    @property
    def model_id(self) -> str:
        """The id of the model that answered last; empty where none has."""
        return next((call.model_id for call in reversed(self.tracer.all_calls) if call.model_id), "")


@dataclass(frozen=True)
class ClientTurn:
    """One request of the user, with what it may use."""

    user_text: str
    functions: Sequence[Function] = ()
    system_text: str = ""
    """The system message of whoever set the agent up."""
    reply_schema: JsonSchema | None = None
    """JSON schema that the agent is told its answer must follow."""
    check: Callable[[], None] = lambda: None
    """Is asked before every question to a model; raises `ConversationEnded` if there should be none."""
    before: Sequence[ChatMessage] = ()
    """What was said before it."""
    goes_on: bool = False
    """Whether that begins with messages of an earlier turn here, its system message among them."""
    owner: str = ""
    """The mark of its key, by which tools are known again."""


@dataclass(frozen=True)
class DefendedAgent:
    """A model with a defense around it. Used by many threads at once."""

    defense: Defense
    stack: ModelStack
    seed: int = 0
    usage_log: UsageLog | None = None

    @property
    def one_turn_only(self) -> bool:
        """True if the defense runs a program from request to answer: a second request has no place."""
        return self.defense.whole_program

    def check(self) -> None:
        """See that the defense can be built for tools that no suite knows; ConfigError if it cannot."""
        self.defense.pipeline(self._build_model(ClientTurn("")), ClientSuite())

    def run_turn(self, dialogue: Dialogue, turn: ClientTurn) -> None:
        """Work on one request. Whatever goes wrong stands in the dialogue, which then cannot go on.

        `ModelError` if a model gave no reply and the defense could not do without.
        """
        LOGGER_STACK.set([])  # agentdojo 0.1.35: the default stack is one list shared by all threads
        start = time.perf_counter()
        dialogue.tracer.usage_log = self.usage_log
        dialogue.requests.append(turn.user_text)
        try:
            with use_tracer(dialogue.tracer):
                self._run_pipeline(dialogue, turn)
        except ModelError as error:
            dialogue.error_kind, dialogue.error = error.kind.value, str(error)
            raise
        except ConversationEnded as ended:
            dialogue.error_kind, dialogue.error = "conversation_ended", str(ended)
        except RunBudgetReached as reached:
            dialogue.error_kind, dialogue.error = "run_budget", str(reached)
        except ConfigError as slip:
            dialogue.error_kind, dialogue.error = "config", str(slip)
        except list_code_errors() as error:
            cause = error.__cause__ if isinstance(error, ModelCodeFailed) else error
            dialogue.error_kind = "model" if isinstance(error, ModelCodeFailed) else "defense"
            dialogue.error = f"{type(cause).__name__}: {cause}"
            dialogue.traceback = format_traceback(cause)
        finally:
            dialogue.duration_s += time.perf_counter() - start

    def _run_pipeline(self, dialogue: Dialogue, turn: ClientTurn) -> None:
        with dialogue.tracer.span("run") as root:
            suite = ClientSuite(turn.functions, turn.system_text)
            pipeline = self.defense.pipeline(self._build_model(turn), suite)
            said = () if turn.goes_on else turn.before
            continued = continue_pipeline(pipeline, said) if turn.before else pipeline
            before = turn.before if turn.goes_on or continued is pipeline else ()
            runtime = ClientRuntime(turn.functions)
            try:
                carried = {**dialogue.carried, ASKED_AGAIN: True} if dialogue.carried else {}
                *_, dialogue.messages, dialogue.carried = continued.query(
                    turn.user_text, runtime, EmptyEnv(), before, carried
                )
            except AbortAgentError as abort:
                dialogue.messages = abort.messages
                root.decision = {"aborted": str(abort)}

    def _build_model(self, turn: ClientTurn) -> ChatModel:
        return _TurnModel(self.stack.for_scene(Scene(CLIENT_SUITE, "", None, "", seed=self.seed)), turn)


@dataclass
class _TurnModel(ModelWrapper):
    """A model as one turn asks it: not any more when that is over, and with what its client asked for."""

    turn: ClientTurn

    def complete(self, request: ChatRequest) -> ChatReply:
        self.turn.check()
        # A client that sends no system message wants none; providers refuse empty ones.
        messages = [each for each in request.messages if each["role"] != "system" or text_of(each).strip()]
        schema = self.turn.reply_schema if request.role in ACTING_ROLES else None
        if schema is None:
            return self.model.complete(replace(request, messages=messages))
        form, told = f"{_ANSWER_FORM} {json.dumps(schema)}", messages[0]
        if told["role"] == "system":
            form, messages = f"{text_of(told)}\n\n{form}", messages[1:]
        messages = [system(form), *messages]
        # Servers that hold a model to a schema let it call no tool: with tools on offer it is told alone.
        sent = request.reply_schema or (None if request.tools else schema)
        return self.model.complete(replace(request, messages=messages, reply_schema=sent))
