"""`Fides`: the defense's options and description, and how the simulated model plays its planner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage, ChatToolResultMessage

from agentsys.base.json_values import list_scalars, map_leaves
from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of
from agentsys.models.pipeline_elements import default_system_message, make_named_pipeline
from agentsys.simulated.playbook_index import Fact, ScriptedCall, TaskScript
from agentsys.simulated.script_grounding import (
    MAX_ATTEMPTS,
    PLACEHOLDER,
    find_fact,
    list_leaf_forms,
    read_tool_result,
)
from agentsys.simulated.scripted_agent import play_plain_agent
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, mark_own_requests
from agentsys.simulated.tool_offers import join_descriptions, play_with_offers
from agentsys_plugins.rivals.fides.fides_agent import QUERY_CONTRACT, ROLE, FidesAgent, FidesSettings
from agentsys_plugins.rivals.fides.hidden_values import VARIABLE_NAME
from agentsys_plugins.rivals.fides.prompts import PLANNER, PROMPTS, QUERY, VARIABLES_ONLY, name_own_tools
from baselines.defense_bases import AgentDefense
from baselines.flow.quarantined_model import ROLE as READER
from baselines.flow.quarantined_model import play_quarantined_model, write_fact_question


@mark_own_requests(lambda request: any(tool.name == QUERY for tool in request.tools))
def play_fides_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer with the ground truth's next call, unread values as names; obey goals in read text."""
    tools = [tool.name for tool in request.tools]
    asked = next((text_of(message) for message in request.messages if message["role"] == "user"), "")
    task = knowledge.find_task(asked, tools)
    results = [message for message in request.messages if message["role"] == "tool"]
    goals = (goal for result in results for goal in knowledge.find_goals(_read_message_text(result), tools))
    goals_told = knowledge.find_told_goals(join_descriptions(request.tools), tools, ROLE)
    obeyed = bool(goals_told) or any(knowledge.obeys(goal, ROLE) for goal in goals)
    if task is None or obeyed or QUERY not in tools:
        return play_plain_agent(request, knowledge)

    def walk(request: ChatRequest, _: SimulatedKnowledge) -> ChatAssistantMessage:
        results = [message for message in request.messages if message["role"] == "tool"]
        return _ScriptWalk(request, task, frozenset(tools), results).pick_next_step()

    return play_with_offers(request, knowledge, walk)


def _read_message_text(message: ChatToolResultMessage) -> str:
    return read_tool_result(message).text


@dataclass
class _ScriptWalk:
    """Replays the conversation against the script to find the next step."""

    request: ChatRequest
    task: TaskScript
    tools: frozenset[str]
    results: list[ChatToolResultMessage]
    position: int = 0
    known: dict[str, str] = field(default_factory=dict)
    """Text of a fact -> the variable that holds it."""
    sources: dict[int, list[str]] = field(default_factory=dict)
    """Index of a call -> variables in its result."""

    def pick_next_step(self) -> ChatAssistantMessage:
        """Return the next question or call, or the answer."""
        for index, call in enumerate(self.task.calls):
            if call.function not in self.tools:
                continue
            facts = [fact for fact in self.task.facts if fact.source < index]
            asked = self._ask_for_fact(facts, call.args, call.function)
            if asked is not None:
                return asked
            if not self._is_made(index, call):
                return self._make_call(call.function, map_leaves(call.args, self._insert_name))
        answer = self.task.answer.strip() or "Done."
        question = self._ask_for_fact(self.task.facts, {"": answer}, None)
        return question or assistant(str(self._insert_name(answer)))

    def _is_made(self, index: int, call: ScriptedCall) -> bool:
        """True if a call is done; a failing call is made three times."""
        for _ in range(MAX_ATTEMPTS):
            result = self._take_result(call.function)
            if result is None:
                return False
            self.sources[index] = [f"#{name}#" for name in VARIABLE_NAME.findall(_read_message_text(result))]
            if result["error"] is None:
                return True
        return True

    def _ask_for_fact(
        self, facts: Iterable[Fact], args: Mapping[str, Any], tool: str | None
    ) -> ChatAssistantMessage | None:
        """Return the question for the first value neither read nor asked for."""
        for name, value in args.items():
            forms = "\n".join(form for leaf in list_scalars(value) for form in list_leaf_forms(leaf))
            for fact in facts:
                names = self.sources.get(fact.source, [])
                if fact.text not in forms or fact.text in self.known or self._is_visible(fact) or not names:
                    continue
                result = self._take_result(QUERY)
                if result is None:
                    words = write_fact_question(fact.field, name if tool else None, tool)
                    args_ = {"query": words, "variables": names, "output_type": "string"}
                    return self._make_call(QUERY, args_)
                variable = VARIABLE_NAME.search(_read_message_text(result))
                self.known[fact.text] = variable[0] if variable else PLACEHOLDER
        return None

    def _is_visible(self, fact: Fact) -> bool:
        """True if a fact is visible in a result; note in `known` the form in which it is written there."""
        texts = (find_fact(fact, _read_message_text(result)) for result in reversed(self.results))
        text = next((text for text in texts if text is not None), None)
        if text is not None and text != fact.text:
            self.known[fact.text] = text
        return text is not None

    def _take_result(self, function: str) -> ChatToolResultMessage | None:
        """Take the next result if it is of this function."""
        result = self.results[self.position] if self.position < len(self.results) else None
        if result is not None and result["tool_call"].function == function:
            self.position += 1
            return result
        return None

    def _insert_name(self, leaf: Any) -> Any:
        """Replace values that were asked for by their names in a part of a scripted value."""
        if not isinstance(leaf, str):
            return next((self.known[form] for form in list_leaf_forms(leaf) if form in self.known), leaf)
        for fact in sorted(self.known, key=len, reverse=True):
            leaf = leaf.replace(fact, self.known[fact])
        return leaf

    def _make_call(self, function: str, args: dict[str, Any]) -> ChatAssistantMessage:
        call = FunctionCall(function=function, args=args, id=f"call_{len(self.request.messages)}")
        return assistant(f"Calling {function}.", [call])


class Fides(AgentDefense):
    """FIDES: labels on messages and arguments, variables in place of untrusted values, policies on calls.

    Args:
        planner: `fides`: untrusted values are variables, which can be asked about and looked at. `variables`:
            all values are variables, and there is neither. `basic`: everything is read.
        policies: Whether calls are judged.
        labels: `benchmark`: untrusted is what the benchmark's injections can be written to, as published.
            `strict`: what somebody other than the user can have written.
        hide: `integrity`: values that are less trusted become variables. `both`: those that fewer may read,
            too.
        max_rounds: Most rounds of calls.
        query_attempts: Most questions to the quarantined model for one answer.

    Source: Costa et al., arXiv 2505.23643.
    """

    roles: ClassVar[Mapping[str, SimulatedRole]] = {ROLE: play_fides_planner, READER: play_quarantined_model}
    texts: ClassVar[Mapping[str, str]] = {**PROMPTS, **QUERY_CONTRACT.list_texts()}

    def __init__(self, name: str = "fides", **options: Any) -> None:
        self.name = name
        self.settings = check_options(FidesSettings, name, options)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case."""
        words = default_system_message(suite)
        if self.settings.planner != "basic":
            text = PLANNER if self.settings.planner == "fides" else VARIABLES_ONLY
            query, inspect = (
                tool.name for tool in name_own_tools([tool.name for tool in getattr(suite, "tools", ())])
            )
            words = f"{words}\n\n{text.format(query=query, inspect=inspect)}"
        agent = FidesAgent(model, self.settings, suite.name)
        return make_named_pipeline(f"{model.name}-{self.name}", SystemMessage(words), InitQuery(), agent)

    def description(self) -> str:
        """Describe what becomes a variable, who reads what, and which calls are refused."""
        settings = self.settings
        return " ".join(
            [
                "One agent works through the request in an ordinary tool loop, in which the conversation,"
                " every argument and every field of a result have a label: who had a part in it, and who may"
                " read it.",
                _LABELS[settings.labels],
                *_describe_planner(settings),
                *_describe_policies(settings),
                f"It ends after {settings.max_rounds} rounds of calls.",
            ]
        )


_LABELS = {
    "strict": "A result is untrusted if somebody other than the user can have written it.",
    "benchmark": "A field is untrusted if the benchmark's injections can be written to it.",
}


def _describe_planner(settings: FidesSettings) -> list[str]:
    if settings.planner == "basic":
        return ["The agent reads all results, and the conversation is then as untrusted as what it has read."]
    if settings.planner == "variables":
        return [
            "Every value in a result is kept in a variable that the agent can only name.",
            "Names are replaced by values when a call runs and in the final answer.",
        ]
    also = " or that others may not read" if settings.hide == "both" else ""
    return [
        f"A value that is less trusted than the conversation{also} is kept in a variable, and the agent reads"
        " its name.",
        "Names are replaced by values when a call runs and in the final answer.",
        "A quarantined model without tools answers questions about variables with a value of a declared type,"
        " which becomes a variable too.",
        "The agent may look at values, and the conversation is then as untrusted as they are.",
    ]


def _describe_policies(settings: FidesSettings) -> list[str]:
    if not settings.policies:
        return ["No policy judges the calls."]
    return [
        "A call that changes something is refused if untrusted data had a part in its being made; where it"
        " only sends something, it may run if everybody it reaches may read all of it and it has no untrusted"
        " link.",
        "The agent is told which rule refused a call, and goes on.",
    ]
