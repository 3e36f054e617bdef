"""`AgentSysTyped`: the defense, its presets and its ablations, as one class with one YAML each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.types import ChatMessage

from agentsys.base.option_checks import check_options
from agentsys.contracts import Defense, Suite
from agentsys.defense.agent_session import AgentSession, SessionElement
from agentsys.defense.agentsys import MAIN_ROLE, read_corrections
from agentsys.defense.agentsys_settings import (
    AgentSysSettings,
    CommandJudge,
    SanitizerTiming,
    TraceView,
    WorkerTools,
)
from agentsys.defense.gate import Failure, GateRule
from agentsys.defense.privileges import PRIVILEGES_CONTRACT, PrivilegeStore, get_privilege_store
from agentsys.defense.tool_turn import ask_next_message
from agentsys.defense.worker import WORKER_CONTRACT
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, text_of, user
from agentsys.models.pipeline_elements import (
    ASKED_AGAIN,
    choose_free_name,
    default_system_message,
    make_named_pipeline,
)
from agentsys.models.trace import span
from agentsys.simulated.simulated_role import SimulatedRole
from agentsys_plugins.typed.argument_roles import load_argument_roles
from agentsys_plugins.typed.handle_store import HandleStore, count_first_call, hide_answer
from agentsys_plugins.typed.prompts import (
    BLIND_ADVICE,
    MAIN_OVER_HANDLES,
    PLAN_QUESTION,
    READ_DESCRIPTION,
    READ_TOOL,
    TASK_POLICY,
)
from agentsys_plugins.typed.simulated_typed import SIMULATED_TYPED_ROLES
from agentsys_plugins.typed.typed_session import ShownKinds, TypedSession, TypedSettings
from agentsys_plugins.typed.value_judge import FlowPolicy, derive_policy

_READ_PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
STORE = "agentsys_typed_store"
"""The extra argument with a request's values: an answer that is asked for again may name them."""


class AgentSysTyped(Defense):
    """The paper's hierarchy with values under names, and code in the place of validator and sanitizer.

    Args:
        privileges_dir: Folder in which the tools' labels are kept, as for `agentsys`.
        tool_labels: A YAML with an operator's own labels of tools, which go before a model's; None: no such.
        roles_file: A YAML with an operator's own roles of arguments, which go before the shipped ones; None: no such.
        options: See `agentsys_plugins.typed.typed_session.TypedSettings`.
    """

    keeps: ClassVar[Mapping[str, str]] = {"privileges_dir": "privileges"}

    def __init__(
        self,
        name: str = "agentsys_typed",
        *,
        privileges_dir: str | None = None,
        tool_labels: str | None = None,
        roles_file: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.settings = check_options(TypedSettings, "AgentSysTyped", options)
        self._corrections = read_corrections(None if tool_labels is None else Path(tool_labels))
        self._privileges_dir = None if privileges_dir is None else Path(privileges_dir)
        self._roles_file = None if roles_file is None else Path(roles_file)
        load_argument_roles(self._roles_file, strict=self.settings.strict_roles)
        build_session_settings(self.settings)

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """The agent for one case, as a pipeline that AgentDojo's own benchmark runs and logs."""
        message = f"{default_system_message(suite)}\n\n{MAIN_OVER_HANDLES}"
        store = get_privilege_store(self._privileges_dir, self._corrections)
        agent = TypedAgent(model, self.settings, store, self._roles_file)
        return make_named_pipeline(f"{model.name}-{self.name}", SystemMessage(message), InitQuery(), agent)

    def description(self) -> str:
        """Say what is hidden, what is judged and by what, as this variant is set."""
        return describe_typed(self.settings)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Give the simulated model's play of worker and of the sorting of tools."""
        return SIMULATED_TYPED_ROLES

    def prompts(self) -> dict[str, str]:
        """Every text this variant says to a model, by name."""
        texts = {
            "main": MAIN_OVER_HANDLES,
            **WORKER_CONTRACT.list_texts(),
            **PRIVILEGES_CONTRACT.list_texts(),
        }
        texts |= {"worker_blind": BLIND_ADVICE} if self.settings.blind_pass else {}
        texts |= {"main_plan": PLAN_QUESTION, "read_value": READ_DESCRIPTION} if self.settings.read else {}
        return texts | ({"task_policy": TASK_POLICY} if self.settings.derived else {})


_POLICY_TEXTS = {
    FlowPolicy.WORDS: "it stands in the user's request or was chosen by a worker that saw no third party's text",
    FlowPolicy.SOLE: (
        "it stands in the user's request, or was found in a place that the request points to, and is a number, a date,"
        " an id, or the only address or account there"
    ),
    FlowPolicy.NAMED: (
        "it stands in the user's request, or was found in a place that the request points to, and is a number, a"
        " date, an address, an account or an id"
    ),
    FlowPolicy.REACHABLE: "it stands in the user's request, or was found anywhere and is no free text",
    FlowPolicy.OFF: "anything",
}


def describe_typed(settings: TypedSettings) -> str:
    """Say in a few sentences what a variant hides and judges: for attackers that know their target, and docs."""
    judged = settings.policy is not FlowPolicy.OFF
    more = ", addresses, accounts, ids and single words" if settings.shows is ShownKinds.CLOSED else ""
    sentences = {
        "The main agent reads the user's request and never a tool output. With every call it declares names of"
        " fields and their types; a worker without tools fills them in, in a context of its own.": True,
        f"Of the fields the main agent sees numbers, dates and truth values{more}; any other text stays hidden"
        " behind a name, which it can pass on as an argument or in its answer, where hidden text stands as a"
        " quotation with its source.": True,
        "A worker first sees the output with all texts of third parties cut out; only fields that are not found"
        " there are asked of a reader of the whole.": settings.blind_pass,
        "It can point at texts that were cut out, which are then taken as they are, or read alone.": (
            settings.blind_pass and settings.points
        ),
        "What stands in a record of somebody else than the user counts as found by such a reader.": settings.labels,
        "No command is judged.": not judged,
        "A command runs only if each recipient, account, address or id in it is such that"
        f" {_POLICY_TEXTS[settings.policy]}. Passwords must stand in the request, and texts that are sent are"
        " free.": judged,
        "Amounts and times may also be worked out by the main agent.": judged and settings.computed,
        "Amounts and times that the main agent worked out are refused.": judged and not settings.computed,
        "A model first derives from the request which commands it needs; others are refused.": settings.derived,
        "The main agent may ask to read a text; from then on only commands that it had named before run, and its"
        " own words count as the text's.": settings.read,
        "Errors are told in a few fixed words, and no model judges a call.": True,
    }
    return " ".join(sentence for sentence, holds in sentences.items() if holds)


_SESSION_PARTS: Mapping[str, Any] = {
    "gate": GateRule.SCHEMA,
    "validator": CommandJudge.OFF,
    "sanitizer": SanitizerTiming.OFF,
    "worker_tools": WorkerTools.NEVER,
    "trace": TraceView.PATH,
    "max_depth": 1,
}
"""The parts of the paper's system that are left: gate and workers."""


def build_session_settings(settings: TypedSettings) -> AgentSysSettings:
    """The settings of the agents' session under a variant.

    Raises:
        ConfigError: If the main agent alone would use up all model calls.
    """
    names = ("case_calls", "subtask_calls", "calls_per_turn")
    bounds = {name: getattr(settings, name) for name in names}
    steps = settings.main_steps + settings.read  # One more question: what is planned.
    return AgentSysSettings(**_SESSION_PARTS, **bounds, main_steps=steps)


class TypedAgent(SessionElement):
    """The loop of the main agent over handles, as an element for AgentDojo's pipelines."""

    name = "agentsys_typed_main"

    def __init__(
        self, model: ChatModel, settings: TypedSettings, store: PrivilegeStore, roles_file: Path | None = None
    ) -> None:
        super().__init__(model, build_session_settings(settings), store)
        self._typed, self._roles_file = settings, roles_file

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn, under the bounds of the paper's main agent."""
        roles = load_argument_roles(self._roles_file, strict=self._typed.strict_roles)
        # Assistant and tools have named values before: nobody's hidden text stands in their messages.
        speakers = ("assistant", "tool")
        earlier = [text_of(_hide_answer(message)) for message in context if message["role"] in speakers]
        kept = session.carried.get(STORE) if session.carried.get(ASKED_AGAIN) else None
        store = (
            kept if isinstance(kept, HandleStore) else HandleStore(session.request, count_first_call(earlier))
        )
        session.carried[STORE] = store
        typed = TypedSession(session, self._typed, roles, store)
        self._plan(typed, context)
        tools = list(session.tools)
        if self._typed.read:
            typed.read_tool = choose_free_name(READ_TOOL, session.runtime.functions)
            tools.append(ToolSpec(typed.read_tool, READ_DESCRIPTION, _READ_PARAMETERS))
        for step in range(self._typed.main_steps + 1):
            asked = [_hide_answer(message, store) for message in context]
            message = ask_next_message(session.main_model, MAIN_ROLE, asked, tools, runtime=session.runtime)
            context.append(message)
            if not message["tool_calls"]:
                context[-1] = assistant(store.write_answer(text_of(message)))
                return True
            if step == self._typed.main_steps:
                break
            answered = typed.serve_turn(message["tool_calls"])
            if typed.agent.is_stuck:  # AgentDojo scores a run whose last message is the agent's.
                session.failure = Failure.STUCK
                break
            context += answered
        return False

    def _plan(self, typed: TypedSession, context: list[ChatMessage]) -> None:
        """Fix the task's own policy, and the commands of an agent that may read, before anything is read."""
        session = typed.session
        if self._typed.derived:
            typed.task_policy = derive_policy(session.model, session.request, session.plain_tools)
        if self._typed.read:
            question = [*map(_hide_answer, context), user(PLAN_QUESTION)]
            request = ChatRequest(question, session.tools, MAIN_ROLE, tool_choice="none")
            reply = text_of(session.main_model.complete(request).message)
            words = [word.strip(".`'\"*()[]") for word in reply.replace(",", " ").split()]
            typed.planned_commands = frozenset({tool.name for tool in session.tools}.intersection(words))
            with span("plan") as opened:
                opened.decision = {"commands": sorted(typed.planned_commands)}


def _hide_answer(message: ChatMessage, store: HandleStore | None = None) -> ChatMessage:
    """An answer of an earlier turn without the hidden texts that it gave to the user."""
    if message["role"] != "assistant" or message["tool_calls"]:
        return message
    written = store.answers.get(text_of(message)) if store is not None else None
    return assistant(hide_answer(text_of(message)) if written is None else written)
