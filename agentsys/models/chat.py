"""Types that every chat model speaks: request, reply, usage, `ChatModel`, and the errors of asking one.

An error is one of a closed set of kinds, each with one consequence; the table is in docs/errors.md.
Providers translate their SDK's exceptions into these kinds; nobody else looks at an SDK exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from operator import add, attrgetter
from typing import Any, Protocol, runtime_checkable

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from agentsys.models.endings import Ending
from agentsys.models.tool_schema import format_type, list_arguments, list_required, make_enforceable_schema

JsonSchema = Mapping[str, Any]


@dataclass(frozen=True)
class ToolSpec:
    """One tool as a model sees it."""

    name: str
    """The tool's name, unique among the tools on offer."""
    description: str
    """What the tool does, in prose."""
    parameters: JsonSchema
    """JSON schema of the arguments object. Shared between requests: never change it in place."""

    @cached_property
    def arguments(self) -> Mapping[str, JsonSchema]:
        """Name -> schema of each argument, wherever in `parameters` it is named."""
        return list_arguments(self.parameters)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Names of the arguments that a call must have."""
        return list_required(self.parameters)

    @cached_property
    def signature(self) -> str:
        """The tool as models are shown it: its description, and the type of each argument."""
        return f"// {self.description}\ntype {self.name} = (_: {format_type(self.parameters)}) => any;\n\n"

    @property
    def json_object(self) -> dict[str, Any]:
        """All of it as one JSON object."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


@dataclass(frozen=True)
class Usage:
    """Tokens of one call or of many.

    `prompt` includes `cached` and `written`; `completion` includes `reasoning`.
    """

    prompt: int = 0
    """Input tokens, cached ones included."""
    completion: int = 0
    """Output tokens, reasoning included."""
    cached: int = 0
    """Input tokens that the provider read from its prompt cache."""
    reasoning: int = 0
    """Output tokens spent on hidden reasoning."""
    uncounted: int = 0
    """Replies that came without a count; where there are any, the tokens (and the cost) are not known."""
    written: int = 0
    """Input tokens that the provider wrote to its prompt cache, where it charges for that."""

    @classmethod
    def from_stored(cls, stored: object) -> Usage:
        """The tokens that a stored call, or what is stored of a role, tells under the same names."""
        return cls(**{count.name: getattr(stored, count.name) for count in fields(cls)})

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, _list_counts(self), _list_counts(other)))


# A twentieth of what `astuple` takes, and every reply of a served agent adds up all spans of its turn.
_list_counts = attrgetter(*(count.name for count in fields(Usage)))


@dataclass(frozen=True)
class ChatRequest:
    """One question to a chat model."""

    messages: Sequence[ChatMessage]
    """The conversation in AgentDojo's message types (content is a list of blocks, or None)."""
    tools: Sequence[ToolSpec] = ()
    """The tools on offer, in order."""
    role: str = "agent"
    """Who is asking (`agent`, `main`, `worker`, `validator`, `sanitizer`, `planner`, ...). For
    accounting, caching, simulation and choice of model; it never becomes prompt text."""
    temperature: float | None = None
    """Sampling temperature; None means the model's own default from its YAML."""
    max_tokens: int | None = None
    """Upper bound on output tokens; None means the model's own default from its YAML."""
    reply_schema: JsonSchema | None = None
    """JSON schema the reply's text must follow, where the provider can enforce one."""
    form_schema: JsonSchema | None = None
    """The same of a reply that is read from free text as well: sent where the model's file says
    `structured: true`, and no tools are on offer."""
    tool_choice: str = "auto"
    """`auto` or `none` (tools are visible, but may not be called)."""
    logprobs: int = 0
    """Alternatives of each output token whose log-probabilities are wanted; 0: none. Few providers tell."""

    def schema_to_send(self, *, structured: bool) -> JsonSchema | None:
        """The schema that the server is given, as all enforce it; a form only where the model's file asks for it."""
        schema = self.reply_schema or (self.form_schema if structured and not self.tools else None)
        return None if schema is None else make_enforceable_schema(schema)


@dataclass(frozen=True)
class ChatReply:
    """A model's answer to one `ChatRequest`."""

    message: ChatAssistantMessage
    """The assistant's message: text blocks or None, and tool calls or None."""
    usage: Usage = field(default_factory=Usage)
    """Tokens as the provider counted them."""
    cost_usd: float | None = None
    """Price of this call in US dollars; None where the model's YAML has no price."""
    latency_s: float = 0.0
    """Seconds from the first attempt's start to the reply, waits between attempts included."""
    model_id: str = ""
    """The model's id as the provider reported it."""
    attempts: int = 1
    """Requests sent for this reply (1: no retry)."""
    from_cache: bool = False
    """Whether the reply was read from our own cache and cost nothing."""
    notes: tuple[str, ...] = ()
    """What the provider adapter wants in the record (e.g. where a replay diverged)."""
    empty_before: int = 0
    """Empty replies that were asked for again before this one."""
    ending: Ending | None = None
    """How it ended; None: not recorded, as of a scripted model or one of an older record."""
    reason: str = ""
    """The server's own word for that, as it came."""
    provider: str = ""
    """Who answered behind a gateway, as it says; empty where nobody does."""
    system_fingerprint: str = ""
    """The server's own mark of what it runs; empty where it has none."""
    odd: Mapping[str, int] = field(default_factory=dict)
    """What its reader met besides, by kind (see agentsys.models.reply_checks)."""
    logprobs: tuple[Mapping[str, float], ...] = ()
    """Per output token the alternatives with their log-probabilities, the token itself first; empty where
    they were not asked for, or not told."""

    @property
    def cut(self) -> bool:
        """True if it ended at a bound on its tokens and not by itself."""
        return self.ending is Ending.CUT


CLIENT_SUITE = "client"
"""The suite that a client's tools are: no benchmark's, so that no rules by suite hold for it."""


@dataclass(frozen=True)
class Scene:
    """The case a model is being asked in. Only scripted models (replay, simulated) look at it."""

    suite: str
    """Empty where nobody tells a served model; `CLIENT_SUITE` where it is no case."""
    user_task_id: str
    injection_task_id: str | None
    attack: str
    epoch: int = 0
    seed: int = 0
    payload: str = ""
    """Digest of what was injected, where a search chose it: then what is obeyed depends on the wording."""
    rerun: int = 0
    """Which further run of one case with one text it is; cached replies are not shared between them."""


@runtime_checkable
class ChatModel(Protocol):
    """Anything that answers chat requests. Must be usable from many threads at once."""

    @property
    def name(self) -> str:
        """The name the model has in configs, records and tables."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ModelError: If the provider failed; its kind says whether to retry, end the case or the run.
        """


@dataclass
class ModelWrapper:
    """A model that hands requests on to another one, and bears its name."""

    model: ChatModel

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name


@runtime_checkable
class SceneModel(ChatModel, Protocol):
    """A scripted model that must know which case it is in (replay, simulated)."""

    def for_scene(self, scene: Scene) -> ChatModel:
        """The model to use for one case; it may hold state of that case."""


@runtime_checkable
class WarmableModel(Protocol):
    """A model that has something to import or to make before its first answer."""

    def warm_up(self) -> None:
        """Do so now; in the first case it would count as that case's time. Called again, it does nothing."""


@runtime_checkable
class RecordedInjectionModel(Protocol):
    """A model that replays recorded runs and so also dictates what was injected."""

    def read_recorded_injections(self, scene: Scene) -> dict[str, str]:
        """Injection vector -> text, exactly as the recorded run had it.

        Raises:
            ModelError: If there is no recorded run for the scene.
        """

    def read_recorded_results(self, scene: Scene) -> Sequence[RecordedResult]:
        """Return the result of each tool call of the recorded run, in order.

        Raises:
            ModelError: If there is no recorded run for the scene.
        """


@runtime_checkable
class RecordedScoreModel(Protocol):
    """A model that replays recorded runs and knows how they were scored."""

    def judges_thoughts(self, scene: Scene) -> bool:
        """True if the recorded run was scored with the model's thoughts.

        Raises:
            ModelError: If there is no recorded run for the scene.
        """


@dataclass(frozen=True)
class RecordedResult:
    """One tool call of a recorded run."""

    function: str
    args: Mapping[str, Any]
    text: str
    """What the agent was shown: the error in place of the content, where there was one."""


UNCOUNTED = Usage(uncounted=1)
"""Usage of a reply that says nothing, or nothing that can be read, about its tokens."""


def text_of(message: ChatMessage) -> str:
    """The text of a message: its text blocks joined by newlines; `""` where it has none.

    A model's thoughts are no part of what it says: they stand in blocks of their own.
    """
    blocks = message["content"] or ()
    return "\n".join([b["content"] for b in blocks if b["type"] == "text" and b["content"] is not None])


def system(text: str) -> ChatMessage:
    """A system message with one text block."""
    return {"role": "system", "content": [text_content_block_from_string(text)]}


def user(text: str) -> ChatMessage:
    """A user message with one text block."""
    return {"role": "user", "content": [text_content_block_from_string(text)]}


def assistant(text: str | None, tool_calls: list[Any] | None = None) -> ChatAssistantMessage:
    """An assistant message with one text block (or none) and the given tool calls."""
    content = None if text is None else [text_content_block_from_string(text)]
    return {"role": "assistant", "content": content, "tool_calls": tool_calls}


def tool_message(call: FunctionCall, text: str, error: str | None = None) -> ChatToolResultMessage:
    """The message that answers a tool call, with one text block."""
    content = [text_content_block_from_string(text)]
    return {"role": "tool", "content": content, "tool_call_id": call.id, "tool_call": call, "error": error}


class Consequence(Enum):
    """The harness's reaction to a model error."""

    RETRY = "retry"
    """Ask again with backoff; when the attempts are used up, the case ends as an error."""
    END_CASE = "end_case"
    """This case is recorded as an error; the run goes on."""
    END_CELL = "end_cell"
    """Every further case with this model would fail alike: give the cell up, and go on with the others."""
    END_RUN = "end_run"
    """Every further case would fail alike: stop the run, keep what is finished."""


class ErrorKind(Enum):
    """Why a model gave no usable reply. What stands below each kind stands in docs/errors.md, too."""

    RATE_LIMITED = "rate_limited"
    """HTTP 429; throttling, as the server calls it, under 400"""
    SERVER_ERROR = "server_error"
    """HTTP 500, 502 and other 5xx; 409, 424, 425, 499"""
    OVERLOADED = "overloaded"
    """HTTP 498, 503, 529; a server that says so under any status"""
    TIMEOUT = "timeout"
    """no whole reply within `timeout_s`; HTTP 408, 504"""
    CONNECTION = "connection"
    """refused, reset, a body that ends too early, or a server whose certificate is not accepted; the message says
    which (a file of certificates to trust: `SSL_CERT_FILE`)"""
    MALFORMED_REPLY = "malformed_reply"
    """a reply that is not JSON (an HTML page, say), lacks its required fields, or calls a tool in a way that nobody
    can be told of; one that is longer than `max_reply_bytes`, nested more than 100 deep, of more than a million
    values, or packed in a way nobody asked for; a call that the server itself could not read (Groq's
    `tool_use_failed`)"""
    CONTEXT_LENGTH = "context_length"
    """the request is too long for the model, as the server says"""
    TOO_LARGE = "too_large"
    """a request that can never fit: more bytes than the server takes (HTTP 413), or more tokens than an account may
    send in a minute"""
    CONTENT_REFUSED = "content_refused"
    """a content filter stopped the prompt or the reply (by code or wording)"""
    BAD_REQUEST = "bad_request"
    """any other 4xx; 3xx: redirects are not followed, as the key would go along, and the message names where to"""
    CASE_BUDGET = "case_budget"
    """the case used up `budget.case_tokens` or `budget.case_seconds` (see [cli.md](cli.md#budgets))"""
    CACHE_MISS = "cache_miss"
    """`cache.mode=read_only`, and no reply to this request is kept"""
    REPLAY_DIVERGED = "replay_diverged"
    """a replayed run does not fit the conversation"""
    FORBIDDEN = "forbidden"
    """HTTP 403, 451; a region, an API that is not enabled, a model that the account may not use, under any
    status"""
    BAD_KEY = "bad_key"
    """HTTP 401; what a server says of a key itself, under 400 or 403; no usable Google credentials"""
    NO_CREDIT = "no_credit"
    """HTTP 402; an empty account, by code or wording, under any status"""
    UNKNOWN_MODEL = "unknown_model"
    """HTTP 404, `model_not_found`"""

    @property
    def consequence(self) -> Consequence:
        """The consequence of an error of this kind."""
        if self in (ErrorKind.BAD_KEY, ErrorKind.NO_CREDIT, ErrorKind.UNKNOWN_MODEL):
            return Consequence.END_RUN
        if self is ErrorKind.FORBIDDEN:
            return Consequence.END_CELL
        return Consequence.RETRY if self in _PASSING_ERRORS else Consequence.END_CASE


_PASSING_ERRORS = frozenset(
    {
        *(ErrorKind.RATE_LIMITED, ErrorKind.SERVER_ERROR, ErrorKind.OVERLOADED),
        *(ErrorKind.TIMEOUT, ErrorKind.CONNECTION, ErrorKind.MALFORMED_REPLY),
    }
)


class ModelError(Exception):
    """A model gave no usable reply.

    The message is one line for the record and must not hold a key; `retry_after_s` is what the provider asked for.
    """

    def __init__(self, kind: ErrorKind, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"{kind.value}: {message}")
        self.kind = kind
        self.retry_after_s = retry_after_s
        self.attempts = 1
        """Requests sent in all before giving up; set by the retry wrapper."""
        self.usage = Usage()
        """What the provider counted for the unusable answer (the retry wrapper: for all of them)."""
        self.answered_uncounted = False
        """Whether there was an answer, which said nothing countable of its tokens."""
        self.cost_usd: float | None = 0.0
        """US dollars of that; None where the model has no price."""


class ModelCodeFailed(Exception):
    """A model's own code raised what no model may raise: a bug in an adapter; the cause is chained."""


def list_code_errors() -> tuple[type[BaseException], ...]:
    """List what foreign code raises when it breaks."""
    from asyncio import CancelledError  # By a task that its own event loop gave up. Slow to import.

    return Exception, SystemExit, CancelledError


FAILED = ";failed="
"""Behind a role: which of the tool results in the request are errors, from 0; not every wire says it."""


def write_role(request: ChatRequest) -> str:
    """The asking role as the header has it, e.g. `agent` or `agent;failed=0,2`."""
    results = [message for message in request.messages if message["role"] == "tool"]
    failed = [str(index) for index, result in enumerate(results) if result["error"] is not None]
    return f"{request.role}{FAILED}{','.join(failed)}" if failed else request.role


def read_role(request: ChatRequest) -> ChatRequest:
    """A request with the errors marked that stand behind its role; the very same where none do."""
    role, told, listed = request.role.partition(FAILED)
    if not told:
        return request
    places = iter(range(len(request.messages)))
    messages: list[ChatMessage] = []
    for message in request.messages:
        failed = message["role"] == "tool" and str(next(places)) in listed.split(",")
        messages.append({**message, "content": None, "error": text_of(message)} if failed else message)
    return replace(request, messages=messages, role=role)
