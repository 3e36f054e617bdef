"""`AgentSys`: the defense, its presets and its ablations, as one class with one YAML each.

`describe_variant` describes a variant's settings in a few sentences, for adaptive attackers and for docs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)

from agentsys.contracts import Defense, Suite
from agentsys.defense.agent_session import AgentSession, CallBudgetExceeded, SessionElement
from agentsys.defense.agentsys_settings import (
    AgentSysSettings,
    FillMode,
    SanitizerTiming,
    WorkerTools,
    read_operators_file,
)
from agentsys.defense.delegation import serve_turn
from agentsys.defense.gate import Failure, GateRule
from agentsys.defense.pinned_tools import ToolPins
from agentsys.defense.privileges import PRIVILEGES_CONTRACT, Labels, Privilege, get_privilege_store
from agentsys.defense.prompts import MAIN, WORKER_MISSING, WORKER_TOOLS
from agentsys.defense.sanitizer import SANITIZER_CONTRACT, sanitize
from agentsys.defense.simulated_agentsys import SIMULATED_ROLES
from agentsys.defense.tool_turn import CallTrace, TracedCall, ask_next_message, check_arguments, run_tool
from agentsys.defense.validator import VALIDATOR_CONTRACT
from agentsys.defense.worker import WORKER_CONTRACT, CallingAgent
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, text_of, tool_message
from agentsys.models.pipeline_elements import default_system_message, make_named_pipeline
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.untrusted import Reader, Untrusted
from agentsys.simulated.simulated_role import SimulatedRole

GUARDED_AGENT_ROLE = "agent"


class GuardedAgent(SessionElement):
    """A plain tool-calling agent whose command calls are judged before they run (`isolation` is off)."""

    name = "agentsys_no_isolation"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn, under the main agent's bounds."""
        trace = CallTrace()
        for step in range(session.settings.main_steps + 1):
            message, refused = _ask_judged_message(session, context, trace)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            for index, call in enumerate(message["tool_calls"]):
                context.append(_run_call(session, call, trace, refused.get(index)))
        return False


def _ask_judged_message(
    session: AgentSession, context: list[ChatMessage], trace: CallTrace
) -> tuple[ChatAssistantMessage, Mapping[int, Failure]]:
    """Return the agent's next message and, by index, the failures of its calls that may not run.

    All calls of the message are judged before any runs. If one is denied, all tool results so far are
    sanitized and the agent is asked again, as often as the budget allows; the denied message is dropped.
    """
    session.begin_subtask()
    asked = (GUARDED_AGENT_ROLE, context, session.plain_tools)
    message = ask_next_message(session.main_model, *asked, runtime=session.runtime)
    refused = _find_refusals(session, message, trace)
    for _ in range(session.settings.max_restarts):
        if Failure.DENIED not in refused.values():
            break
        try:
            context[:] = [_sanitize_result(session, item) for item in context]
            message = ask_next_message(session.model, *asked, runtime=session.runtime)
        except CallBudgetExceeded:
            break
        refused = _find_refusals(session, message, trace)
    return message, refused


def _find_refusals(
    session: AgentSession, message: ChatAssistantMessage, trace: CallTrace
) -> Mapping[int, Failure]:
    earlier = trace.branch()
    refused: dict[int, Failure] = {}
    for index, call in enumerate(message["tool_calls"] or ()):
        arguments = check_arguments(session.runtime, call)
        if index >= session.settings.calls_per_turn:
            refused[index] = Failure.BUDGET_EXHAUSTED
        elif not isinstance(arguments, str):
            proposed = TracedCall(call.function, arguments.parsed, None)
            judge = session.settings.validator
            if session.allows_within_budget(judge, proposed, earlier):
                earlier.add(proposed)
            else:
                refused[index] = Failure.DENIED
    return refused


def _sanitize_result(session: AgentSession, message: ChatMessage) -> ChatMessage:
    if message["role"] != "tool":
        return message
    tool = message["tool_call"].function
    error = message["error"]
    text = _unwrap(sanitize(session.model, Untrusted(text_of(message)), tool).text)
    error = _unwrap(sanitize(session.model, Untrusted(error), tool).text) if error is not None else None
    return {**message, "content": [text_content_block_from_string(text)], "error": error}


def _run_call(
    session: AgentSession, call: FunctionCall, trace: CallTrace, refused: Failure | None
) -> ChatToolResultMessage:
    arguments = check_arguments(session.runtime, call)
    if isinstance(arguments, str):
        return tool_message(call, arguments)
    if refused is not None:
        return tool_message(call, refused.as_text(tool_ran=False))
    trace.add(TracedCall(call.function, arguments.parsed, None))
    output = run_tool(session.runtime, session.env, call.function, arguments.raw)
    error = None if output.error is None else _unwrap(output.error.text)
    return tool_message(call, _unwrap(output.text), error)


def _unwrap(foreign: Untrusted[str]) -> str:
    """Return the whole text: this variant isolates nothing."""
    return foreign.open_for(Reader.AGENT)


def describe_variant(settings: AgentSysSettings) -> str:
    """Describe a variant in 5 to 10 sentences: isolation, return values, checks and bounds."""
    return " ".join(_describe_isolation(settings) if settings.isolation else _describe_no_isolation(settings))


def _describe_isolation(settings: AgentSysSettings) -> list[str]:
    return [
        "The main agent reads the user's request and never a raw tool output.",
        "With every tool call it declares an intent: names of fields and their types, fixed before anything"
        " is seen.",
        "Each output goes to a fresh worker agent, which sees that output, the intent and a list of the calls"
        " that led to it, but neither the request nor the main conversation.",
        "The worker has to answer with one JSON object of the declared fields; only that object crosses to"
        " the main agent, everything else the worker says is dropped.",
        _GATE_TEXTS[settings.gate],
        _describe_tools(settings),
        *_describe_filling(settings),
        _describe_checks(settings),
        _describe_cleaning(settings),
        *_describe_pins(settings),
        "A failure is told to the main agent as one of a few fixed words, never in the output's words.",
    ]


_GATE_TEXTS = {
    GateRule.SYNTACTIC: "The gate is syntactic: any JSON object passes, keys that nobody declared included.",
    GateRule.SCHEMA: (
        "The gate holds the object against the intent: undeclared keys are cut off, a missing field or a"
        " wrong type or a text beyond 20,000 characters is refused, and a text in a declared field passes"
        " whatever it says."
    ),
}


def _describe_tools(settings: AgentSysSettings) -> str:
    if settings.max_depth == 1 or settings.worker_tools is WorkerTools.NEVER:
        return "A worker has no tools."
    if settings.worker_tools is WorkerTools.ON_REQUEST:
        return (
            "A worker has no tools at first; once it has said that a field is missing it may call tools that"
            f" only look something up, down to depth {settings.max_depth}, and what they return goes to a"
            " further worker."
        )
    return (
        f"A worker may call tools itself, down to depth {settings.max_depth} and within"
        f" {settings.worker_steps} steps, and what they return goes to a further worker."
    )


def _describe_filling(settings: AgentSysSettings) -> list[str]:
    if settings.fill is FillMode.NONE:
        return []
    typed = settings.fill is FillMode.TYPED
    more = " and fields of a closed type that the tool's own value has" if typed else ""
    return [f"The status of a call that only acts{more} are filled in by code, without a worker."]


def _describe_pins(settings: AgentSysSettings) -> list[str]:
    first = (
        "What tools say of themselves, and the parameters that they have, are those of the first look at each;"
        " one that has changed since is sorted once more, and never as reading only if it was not."
    )
    return [first] if settings.pin_tools else []


_VALIDATOR_TEXT = (
    "a validator model that sees the request, the earlier calls and the proposed one, but no output, has to find it"
    " needed for the request"
)


def _describe_checks(settings: AgentSysSettings) -> str:
    if not settings.has_judge:
        return "No validator judges the calls that a worker proposes."
    both = settings.validate_main is settings.validator
    who = "a worker and the main agent" if both else "a worker"
    runs = "run" if both else "runs"
    checks = f"Before {who} {runs} a tool that changes something, {_VALIDATOR_TEXT}."
    if settings.validator_threshold is not None:
        sure = f"with a probability of at least {settings.validator_threshold:g}, whatever word it says"
        checks = checks.replace("has to find it needed for the request", f"has to find it needed, {sure}")
    return checks


def _describe_cleaning(settings: AgentSysSettings) -> str:
    first = (
        "Every output is read by a sanitizer model first, which names passages that give instructions;"
        " those are cut out before the worker reads the rest."
    )
    again = (
        "After a denial a sanitizer model names the passages of the output that give instructions, they are"
        f" cut out and the extraction starts again, at most {settings.sanitize_budget} times per output."
    )
    if settings.sanitizer is SanitizerTiming.OFF:
        denied = "A denied call ends the subtask; nothing" if settings.has_judge else "Nothing"
        return f"{denied} is cut out of outputs."
    if settings.sanitizer is SanitizerTiming.BOTH:
        return f"{first} {again}"
    return first if settings.sanitizes_first else again


def _describe_no_isolation(settings: AgentSysSettings) -> list[str]:
    cleaning = (
        "After a denial all tool results in the conversation are read by a sanitizer model, the passages it"
        f" names as instructions are cut out and the step is tried again, at most"
        f" {settings.sanitize_budget} times."
        if settings.max_restarts
        else "After a denial the call is left out; nothing is cut out of results."
    )
    return [
        "One agent works for the user and reads every tool output raw, in its own conversation.",
        "There are no workers, no intents and no gate, so an output is kept from nothing.",
        "Tools are sorted beforehand into those that only look something up and those that change something.",
        f"Before a call of the second kind runs, {_VALIDATOR_TEXT}.",
        "Calls that only look something up are never judged.",
        cleaning,
        *_describe_pins(settings),
        f"The agent takes at most {settings.main_steps} rounds of tool calls.",
    ]


class AgentSys(Defense):
    """Hierarchical isolation with a return gate, a validator and a sanitizer (the paper's section 5).

    Args:
        privileges_dir: Folder in which the tools' labels are kept. None keeps them in memory; a run puts
            them beside its records instead.
        tool_labels: A YAML with an operator's own labels of tools, which override a model's; None: no such file.
        options: Fields of `agentsys.defense.agentsys_settings.AgentSysSettings`; the defaults are the paper's system.
    """

    keeps: ClassVar[Mapping[str, str]] = {"privileges_dir": "privileges"}

    def __init__(
        self,
        name: str = "agentsys",
        *,
        privileges_dir: str | None = None,
        tool_labels: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.corrections = read_corrections(None if tool_labels is None else Path(tool_labels))
        self.privileges_dir = None if privileges_dir is None else Path(privileges_dir)
        self.settings = AgentSysSettings.from_options(options)

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """Build the agent for one case as an AgentDojo pipeline."""
        message = default_system_message(suite)
        if self.settings.isolation:
            message = f"{message}\n\n{MAIN}"
        kind = MainAgent if self.settings.isolation else GuardedAgent
        store = get_privilege_store(self.privileges_dir, self.corrections)
        pins = ToolPins(suite.tools, self.privileges_dir) if self.settings.pin_tools else None
        agent = kind(model, self.settings, store, pins)
        return make_named_pipeline(f"{model.name}-{self.name}", SystemMessage(message), InitQuery(), agent)

    def description(self) -> str:
        """Describe this variant for attackers and docs."""
        return describe_variant(self.settings)

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Return the simulated model's handlers for worker, validator, sanitizer and the sorting of tools."""
        return SIMULATED_ROLES

    def prompts(self) -> dict[str, str]:
        """Prompt name -> text, for every text that this variant sends to a model."""
        return collect_prompts(self.settings)


def collect_prompts(settings: AgentSysSettings) -> dict[str, str]:
    """Prompt name -> text of a variant, for `agentsys show prompts`."""
    calls = settings.isolation and settings.max_depth > 1
    contracts: list[tuple[bool, ReplyContract[Any]]] = [
        (settings.isolation, WORKER_CONTRACT),
        (settings.has_judge, VALIDATOR_CONTRACT),
        (settings.sanitizer is not SanitizerTiming.OFF, SANITIZER_CONTRACT),
        (settings.sorts_tools, PRIVILEGES_CONTRACT),
    ]
    texts = {"main": MAIN} if settings.isolation else {}
    for used, contract in contracts:
        texts |= contract.list_texts() if used else {}
    if calls and settings.worker_tools is WorkerTools.ALWAYS:
        texts["worker_tools"] = WORKER_TOOLS
    if calls and settings.worker_tools is WorkerTools.ON_REQUEST:
        texts["worker_missing"] = WORKER_MISSING
    return texts


_LABEL_WORDS = {label.value: label for label in Privilege}


def read_corrections(path: Path | None) -> Labels:
    """Read an operator's own labels from a YAML: tool name -> `query` or `command`.

    Raises:
        ConfigError: If the file cannot be read or holds anything else.
    """
    if path is None:
        return {}
    where = f"defense.tool_labels {path}"
    stored = read_operators_file(path, "tool_labels", "a line for each tool: NAME: query")
    if not isinstance(stored, dict) or not stored:
        raise ConfigError(
            f"{where} has no labels; write a line for each tool: NAME: query, or NAME: command."
        )
    for tool, word in stored.items():
        if not isinstance(tool, str) or not isinstance(word, str) or word not in _LABEL_WORDS:
            raise ConfigError(f"{where}: tool {tool!r} is {word!r}; write query or command.")
    return {tool: _LABEL_WORDS[word] for tool, word in stored.items()}


MAIN_ROLE = "main"


class MainAgent(SessionElement):
    """The loop of the isolated main agent, as an element for AgentDojo's pipelines."""

    name = "agentsys_main"

    def converse(self, session: AgentSession, context: list[ChatMessage]) -> bool:
        """Extend the context turn by turn; returns True if the model stopped by itself.

        Bounded like AgentDojo's loop, so that variants and baselines are compared under one limit: a first
        message, then at most `main_steps` rounds of calls, each followed by one more message.
        """
        agent = CallingAgent()
        for step in range(session.settings.main_steps + 1):
            asked = (MAIN_ROLE, context, session.tools)
            message = ask_next_message(session.main_model, *asked, runtime=session.runtime)
            context.append(message)
            if not message["tool_calls"]:
                return True
            if step == session.settings.main_steps:
                break
            answered = serve_turn(session, message["tool_calls"], agent)
            if agent.is_stuck:  # AgentDojo scores a run whose last message is the agent's.
                session.failure = Failure.STUCK
                break
            context += answered
        return False
