"""`Middleware`: the guard as a defense, around the plain agent or around any other defense.

`GuardedRuntime` stands before its tools, `GuardedModel` before its inner agents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import yaml
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage, text_content_block_from_string
from pydantic import BaseModel

from agentsys.base.json_values import bound_value
from agentsys.contracts import Defense, Suite
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelWrapper, text_of
from agentsys.models.pipeline_elements import (
    LoopState,
    LoopStep,
    default_system_message,
    make_named_pipeline,
    tool_loop,
    tool_specs,
    write_tool_value,
)
from agentsys.models.trace import get_current_tracer, span
from agentsys_plugins.vectors.middleware.guard import (
    CallDecision,
    Guard,
    GuardSession,
    Screened,
    screen_value,
)
from agentsys_plugins.vectors.middleware.guard_settings import (
    HANDLING_ORDER,
    GuardLayer,
    GuardSettings,
    Handling,
    require_middleware_packages,
)
from agentsys_plugins.vectors.middleware.tool_policy import (
    ArgumentRule,
    iterate_texts,
    list_shipped_policies,
    load_tool_policy,
    propose_policy,
)
from baselines.defense_bases import CompositeDefense
from baselines.tool_boundary.boundary_filter import DescriptionText, rewrite_descriptions

MIDDLEWARE_SPAN = "middleware"


class GuardedRuntime(FunctionsRuntime):  # type: ignore[misc]
    """Guards every call, whoever makes it: a plain loop, an inner agent, an interpreter.

    A refused call does not run. A value in whose texts nothing was found is handed on as it is; else as text.
    """

    def __init__(
        self,
        inner: FunctionsRuntime,
        session: GuardSession,
        tools: Mapping[str, Mapping[str, ArgumentRule]] | None,
    ) -> None:
        super().__init__(list(inner.functions.values()))
        self.inner = inner
        self.session = session
        self.tools = tools

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool if the guard allows it."""
        if function not in self.functions:
            unknown: tuple[Any, str | None] = super().run_function(env, function, kwargs, raise_on_error)
            return unknown
        # Calls inside arguments run here, so that they are guarded, too.
        args = self._execute_nested_calls(env, kwargs)
        decision = self.session.calls(function, _to_typed_plain_data(args), self.tools)
        if not decision.allowed:
            with span(MIDDLEWARE_SPAN, decision.tool) as node:
                node.decision = {
                    "what": "call",
                    "handling": decision.handling.value,
                    "score": decision.score,
                    "findings": [finding.as_data() for finding in decision.findings],
                    "args": _to_typed_plain_data(args),
                }
            if raise_on_error:
                raise ValueError(decision.reason)
            return "", decision.reason
        value, error = self.inner.run_function(env, function, args, raise_on_error)
        return self._screen_result(function, bound_value(value), error, decision)

    def _screen_result(
        self, tool: str, value: Any, error: str | None, decision: CallDecision
    ) -> tuple[Any, str | None]:
        seen: list[Screened] = []

        def screen(text: str) -> Screened:
            seen.append(self.session.reads(text, tool))
            return seen[-1]

        shown_error = None if error is None else screen(error).text
        screened = [screen(text) for text in iterate_texts(value)]
        if not any(text.changed for text in screened):
            shown = value
        else:
            data = screen_value(_to_typed_plain_data(value), screen)
            # As AgentDojo would have written the value that it comes from.
            shown = str(yaml.safe_dump(data)).strip() if isinstance(value, BaseModel | list) else str(data)
            get_current_tracer().note_rewritten_text(write_tool_value(value), shown)
        unique = {verdict.original: verdict for verdict in seen if verdict.findings}
        handlings = [verdict.handling for verdict in seen]
        strictest = max(handlings, key=HANDLING_ORDER.index, default=Handling.ALLOW)
        with span(MIDDLEWARE_SPAN, tool) as node:
            node.decision = {
                "what": "result",
                "handling": strictest.value,
                "score": max((verdict.score for verdict in seen), default=0.0),
                "texts": [build_screened_record(verdict) for verdict in unique.values()],
                "call_score": decision.score,
            }
        return shown, shown_error


def build_screened_record(screened: Screened) -> dict[str, Any]:
    """Build the record of a screened text; it holds the whole original if the text was changed."""
    original = {"original": screened.original, "shown": screened.text} if screened.changed else {}
    return {
        "id": screened.id,
        "handling": screened.handling.value,
        "score": screened.score,
        "findings": [finding.as_data() for finding in screened.findings],
        **original,
    }


def _to_typed_plain_data(value: Any) -> Any:
    """Models as plain data, their types otherwise kept (a date stays a date)."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return {key: _to_typed_plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_to_typed_plain_data(item) for item in value]
    return value


NOT_AVAILABLE = "Not Available: "
"""Begins every replaced value in a returned object, as return gates expect it of a missing one."""


class GuardedModel(ModelWrapper):
    """A model whose replies in the roles of inner agents are screened for contagion, if they end its work.

    In a JSON object each text is screened by itself, so that the object keeps its form.
    """

    def __init__(self, model: ChatModel, roles: Sequence[str]) -> None:
        super().__init__(model)
        self.roles = frozenset(roles)
        self.session: GuardSession | None = None
        """The conversation under way; set anew for each run of the pipeline."""

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        reply = self.model.complete(request)
        if self.session is None or request.role not in self.roles or reply.message["tool_calls"]:
            return reply
        return replace(reply, message=self._screen_message(reply.message, request.role, self.session))

    def _screen_message(
        self, message: ChatAssistantMessage, role: str, session: GuardSession
    ) -> ChatAssistantMessage:
        text = text_of(message)
        seen: list[Screened] = []

        def screen(part: str) -> Screened:
            seen.append(session.passes_on(part, f"return of {role}"))
            return seen[-1]

        shown = _replace_text(text, screen)
        with span(MIDDLEWARE_SPAN, f"return of {role}") as node:
            node.decision = {
                "what": "return",
                "texts": [build_screened_record(screened) for screened in seen if screened.findings],
            }
        if shown == text:
            return message
        get_current_tracer().note_rewritten_text(text, shown)
        return {**message, "content": [text_content_block_from_string(shown)]}


def _replace_text(text: str, screen: Callable[[str], Screened]) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict | list):
        return screen(text).text

    def mark_changed(part: str) -> Screened:
        screened = screen(part)
        return replace(screened, text=NOT_AVAILABLE + screened.text) if screened.changed else screened

    cleaned = screen_value(data, mark_changed)
    return text if cleaned is data else json.dumps(cleaned, ensure_ascii=False)


OF_SUITE = "suite"
"""Value of the option `policy`: the suite's shipped policy, else one proposed from its tools."""
ToolRules = Mapping[str, Mapping[str, ArgumentRule]]


class Middleware(CompositeDefense):
    """Three layers of checks between an agent, its tools and other agents. No model is asked.

    Args:
        policy: `suite`, the name of a shipped policy, or a file.
        role: The policy's role; None: its default one.
        options: `layers`, `thresholds`, `combine` and `scope`, as of `Guard`.
        inner_roles: Roles of inner agents whose return values are screened.
        inner: The defense that it is put around; None: the plain agent.
    """

    holds = ("inner",)
    reads_tools = False

    def __init__(
        self,
        name: str = "middleware",
        *,
        policy: str = OF_SUITE,
        role: str | None = None,
        inner_roles: Sequence[str] = ("worker",),
        inner: Defense | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.options = options
        self.settings = GuardSettings.from_options(**options)
        self.policy, self.role = policy, role
        self.inner_roles = tuple(inner_roles)
        self.inner = inner
        self.members = () if inner is None else (inner,)
        if inner is not None and not isinstance(inner, Defense):
            raise ConfigError(
                f"defense '{name}': inner is no defense; give a name or a node with a `_target_`."
            )
        if policy != OF_SUITE:
            load_tool_policy(policy).tools_of(role)
        self._guard = lru_cache(maxsize=1)(lambda: Guard(**options))

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case, guarded."""
        watched = GuardedModel(model, self.inner_roles)
        name = f"{model.name}-{self.name}"
        if self.inner is not None:
            agent = self.inner.pipeline(watched, suite)
        else:
            agent = tool_loop(watched, default_system_message(suite), name=name)
        tools = self.list_allowed_tools(suite) if self.settings.has(GuardLayer.POLICY) else None
        return make_named_pipeline(name, MiddlewareAgent(agent, self._guard(), tools, watched))

    def read_tools(self, tools: Sequence[Function], suite: Suite, model: ChatModel) -> list[Function]:
        """Return the tools with descriptions screened as results are; only wholly withheld ones change."""
        screen = self._guard().text

        def read(texts: Sequence[DescriptionText]) -> list[str]:
            screened = [screen(piece.text) for piece in texts]
            # A tool may be about what a sentence in a result must not be: one cut sentence changes nothing.
            passing = (Handling.ALLOW, Handling.REWRITE)
            return [piece.original if piece.handling in passing else piece.text for piece in screened]

        return rewrite_descriptions(tools, read)

    def list_allowed_tools(self, suite: TaskSuite[Any]) -> ToolRules:
        """Return the tools and arguments that the policy allows on a suite."""
        name = suite.name if self.policy == OF_SUITE else self.policy
        if self.policy == OF_SUITE and name not in list_shipped_policies():
            return propose_policy(tool_specs(suite.tools)).tools_of(self.role)
        return load_tool_policy(name).tools_of(self.role)

    def ready(self) -> None:
        """Check that the extra and the needs of the inner defense are installed."""
        require_middleware_packages()
        super().ready()

    def rehearsed(self) -> Middleware:
        """Return the defense with the offline stand-in of the inner defense, if it has one."""
        inner = None if self.inner is None else self.inner.rehearsed()
        if inner is self.inner:
            return self
        return Middleware(
            self.name,
            policy=self.policy,
            role=self.role,
            inner_roles=self.inner_roles,
            inner=inner,
            **self.options,
        )

    def description(self) -> str:
        """Describe which layers act, what they do, and what they are put around."""
        if self.inner is None:
            return describe_layers(self.settings, None)
        return describe_layers(self.settings, self.inner.description() or f"It is {self.inner.name}.")

    def prompts(self) -> Mapping[str, str]:
        """The inner defense's texts; the middleware sends a model none."""
        return {} if self.inner is None else self.inner.prompts()


class MiddlewareAgent(LoopStep):
    """Runs an agent with guarded tools, and screens its answer. Each run is a conversation of its own."""

    def __init__(
        self, agent: BasePipelineElement, guard: Guard, tools: ToolRules | None, model: GuardedModel
    ) -> None:
        self.agent = agent
        self.guard = guard
        self.tools = tools
        self.model = model

    def step(self, at: LoopState) -> LoopState:
        """One run."""
        session = self.model.session = self.guard.session()
        guarded = GuardedRuntime(at.runtime, session, self.tools)
        _, _, env, messages, extra = self.agent.query(at.query, guarded, at.env, at.messages, at.extra)
        if messages and messages[-1]["role"] == "assistant" and not messages[-1]["tool_calls"]:
            answer = session.passes_on(text_of(messages[-1]), "answer")
            if answer.findings:
                with span(MIDDLEWARE_SPAN, "answer") as node:
                    node.decision = {"what": "answer", "texts": [build_screened_record(answer)]}
            if answer.changed:
                last = {**messages[-1], "content": [text_content_block_from_string(answer.text)]}
                messages = [*messages[:-1], last]
        return replace(at, env=env, messages=messages, extra=extra)


_NORMALIZATION = (
    " Texts that tools return are cleaned first: hidden and executable markup, invisible and disguising"
    " characters and encoded instructions are taken out, and a text in which nothing is found stays as it is."
)
_POLICY = (
    " A tool call that a policy in a file does not allow, by tool, argument, URL or path, does not run. Each"
    " text is scored from 0 to 10 by a list of patterns: from {rewrite:g} the sentences with instructions are"
    " cut, from {quarantine:g} {held} is held for review, from {block:g} it is blocked."
)
_CONTAGION = (
    " What the agent writes into calls, what inner agents return and the answer are compared with what was"
    " read: copied or paraphrased instructions, and words that ask to be passed on, are scored and withheld"
    " alike."
)


def describe_layers(settings: GuardSettings, inner: str | None) -> str:
    """Describe the layers that act, and what they are put around."""
    limits = settings.thresholds
    scores = {"rewrite": limits.rewrite, "quarantine": limits.quarantine, "block": limits.block}
    withheld = "the text" if settings.scope == "text" else "what gives instructions in the text"
    texts = {
        GuardLayer.NORMALIZATION: _NORMALIZATION,
        GuardLayer.POLICY: _POLICY.format(**scores, held=withheld),
        GuardLayer.CONTAGION: _CONTAGION,
    }
    acting = [layer for layer in GuardLayer if settings.has(layer)]
    start = (
        "Code without a model stands between the agent, its tools and other agents"
        f" (layers: {', '.join(acting)}).{''.join(texts[layer] for layer in acting)}"
    )
    if inner is not None:
        # A few sentences of the other's, so that both together stay readable.
        return f"{start} Behind it works another defense. {'. '.join(inner.split('. ')[:3]).rstrip('.')}."
    return (
        f"{start} The agent itself is the plain one, which reads the request and the screened results in one"
        " conversation. The checks know neither the user's request nor the model's reasons."
        " An attack in words that no pattern knows passes."
    )
