"""`Middleware`: the guard as a defense, around the plain agent or around any other defense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import Function
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import text_content_block_from_string

from agentsys.abilities import DescribesItself, NamesPrompts, Rehearsable
from agentsys.contracts import Defense, Suite
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, text_of
from agentsys.models.pipeline_elements import (
    LoopState,
    LoopStep,
    default_system_message,
    named_pipeline,
    tool_loop,
    tool_specs,
)
from agentsys.models.trace import span
from baselines.defense_bases import CompositeDefense
from baselines.middleware.guard import Guard
from baselines.middleware.guard_settings import (
    GuardLayer,
    GuardSettings,
    Handling,
    require_middleware_packages,
)
from baselines.middleware.guarded_agent import (
    MIDDLEWARE_SPAN,
    GuardedModel,
    GuardedRuntime,
    screened_as_record,
)
from baselines.middleware.tool_policy import (
    ArgumentRule,
    list_shipped_policies,
    load_tool_policy,
    propose_policy,
)
from baselines.tool_boundary.tool_descriptions import DescriptionText, rewrite_descriptions

OF_SUITE = "suite"
"""The option `policy` for: the suite's own policy where one is shipped, else one proposed from its tools."""
ToolRules = Mapping[str, Mapping[str, ArgumentRule]]


class Middleware(CompositeDefense):
    """Three layers of checks between an agent, its tools and other agents. No model is asked.

    Args:
        name: The defense's name in configs, records and tables.
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
        """The agent for one case, guarded."""
        watched = GuardedModel(model, self.inner_roles)
        name = f"{model.name}-{self.name}"
        if self.inner is not None:
            agent = self.inner.pipeline(watched, suite)
        else:
            agent = tool_loop(watched, default_system_message(suite), name=name)
        tools = self.allowed_tools(suite) if self.settings.has(GuardLayer.POLICY) else None
        return named_pipeline(name, MiddlewareAgent(agent, self._guard(), tools, watched))

    def read_tools(self, tools: Sequence[Function], suite: Suite, model: ChatModel) -> list[Function]:
        """Give the tools with their descriptions screened as results are; only what is held whole changes."""
        screen = self._guard().text

        def read(texts: Sequence[DescriptionText]) -> list[str]:
            screened = [screen(one.text) for one in texts]
            # A tool may be about what a sentence in a result must not be: one cut sentence changes nothing.
            passing = (Handling.ALLOW, Handling.REWRITE)
            return [one.original if one.handling in passing else one.text for one in screened]

        return rewrite_descriptions(tools, read)

    def allowed_tools(self, suite: TaskSuite[Any]) -> ToolRules:
        """What the policy allows on a suite."""
        name = suite.name if self.policy == OF_SUITE else self.policy
        if self.policy == OF_SUITE and name not in list_shipped_policies():
            return propose_policy(tool_specs(suite.tools)).tools_of(self.role)
        return load_tool_policy(name).tools_of(self.role)

    def ready(self) -> None:
        """Look whether the extra, and what the defense inside needs, is here."""
        require_middleware_packages()
        super().ready()

    def rehearsed(self) -> Middleware:
        """With the offline stand-in of the defense inside, where it has one."""
        if not isinstance(self.inner, Rehearsable):
            return self
        return Middleware(
            self.name,
            policy=self.policy,
            role=self.role,
            inner_roles=self.inner_roles,
            inner=self.inner.rehearsed(),
            **self.options,
        )

    def description(self) -> str:
        """Which layers act and what they do, and what they are put around."""
        if self.inner is None:
            return describe_layers(self.settings, None)
        if isinstance(self.inner, DescribesItself):
            return describe_layers(self.settings, self.inner.description())
        return describe_layers(self.settings, f"It is {self.inner.name}.")

    def prompts(self) -> Mapping[str, str]:
        """The texts of the defense inside; the middleware says nothing to a model."""
        return self.inner.prompts() if isinstance(self.inner, NamesPrompts) else {}


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
        _, _, env, said, extra = self.agent.query(at.query, guarded, at.env, at.messages, at.extra)
        if said and said[-1]["role"] == "assistant" and not said[-1]["tool_calls"]:
            answer = session.passes_on(text_of(said[-1]), "answer")
            if answer.findings:
                with span(MIDDLEWARE_SPAN, "answer") as node:
                    node.decision = {"what": "answer", "texts": [screened_as_record(answer)]}
            if answer.changed:
                said = [*said[:-1], {**said[-1], "content": [text_content_block_from_string(answer.text)]}]
        return replace(at, env=env, messages=said, extra=extra)


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
    """The layers that act, and what they are put around."""
    limits = settings.thresholds
    scores = {"rewrite": limits.rewrite, "quarantine": limits.quarantine, "block": limits.block}
    held = "the text" if settings.scope == "text" else "what gives instructions in the text"
    texts = {
        GuardLayer.NORMALIZATION: _NORMALIZATION,
        GuardLayer.POLICY: _POLICY.format(**scores, held=held),
        GuardLayer.CONTAGION: _CONTAGION,
    }
    acting = [layer for layer in GuardLayer if settings.has(layer)]
    start = (
        "Code without a model stands between the agent, its tools and other agents"
        f" (layers: {', '.join(acting)}).{''.join(texts[layer] for layer in acting)}"
    )
    if inner is not None:
        return f"{start} Behind it works another defense. {_first_sentences(inner)}"
    return (
        f"{start} The agent itself is the plain one, which reads the request and the screened results in one"
        " conversation. The checks know neither the user's request nor the model's reasons."
        " An attack in words that no pattern knows passes."
    )


def _first_sentences(text: str) -> str:
    """The first sentences of a description: a few, so that both together stay readable."""
    sentences = text.split(". ")
    return ". ".join(sentences[:3]).rstrip(".") + "."
