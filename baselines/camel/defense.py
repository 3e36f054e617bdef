"""`Camel`: the defense's options and description, and how the simulated model plays its planner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.json_values import list_scalars
from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, text_of
from agentsys.models.pipeline_elements import default_system_message, make_named_pipeline
from agentsys.simulated.playbook_index import Fact, TaskScript
from agentsys.simulated.script_grounding import MAX_ATTEMPTS, PLACEHOLDER, list_leaf_forms
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, mark_own_requests
from agentsys.simulated.tool_offers import PARAMETER_REQUESTS, find_twins
from baselines.camel.camel_agent import PROGRAM_CONTRACT, ROLE, CamelAgent, CamelSettings
from baselines.camel.language.interpreter import find_program
from baselines.camel.language.machine import ProgramError
from baselines.camel.prompts import PROMPTS
from baselines.camel.suite_world import QUERY, QUERY_CONTRACT
from baselines.defense_bases import AgentDefense
from baselines.flow.quarantined_model import ROLE as READER
from baselines.flow.quarantined_model import play_quarantined_model, write_fact_question

DONE = "Done."
_TOOL = re.compile(r"^def (\w+)\(", re.MULTILINE)
_PLACE = re.compile(r"^In line (\d+)[.:]", re.MULTILINE)


@mark_own_requests(lambda request: f"\ndef {QUERY}(" in text_of(request.messages[0]))
def play_camel_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer with the ground truth as a program, one statement a line; after an error with the rest of it."""
    prompt, query = text_of(request.messages[0]), text_of(request.messages[1])
    tools = _TOOL.findall(prompt)
    script = _add_told_goals(_find_script(query, tools, knowledge), prompt, tools, knowledge)
    offers = _Offers.read(prompt, query, knowledge)
    lines = list(_render_program(script, frozenset(tools), offers))
    left = _list_remaining_lines(lines, request.messages[2:])
    return assistant("```python\n" + "\n".join(left) + "\n```")


def _find_script(query: str, tools: Sequence[str], knowledge: SimulatedKnowledge) -> TaskScript:
    """Find the user task's script; an injection task's where the user asks for one."""
    task = knowledge.find_task(query, tools)
    if task is not None:
        return replace(task, answer=task.answer.strip() or DONE)
    goal = next(iter(knowledge.find_goals(query, tools)), None)
    calls, answer = ((), DONE) if goal is None else (goal.calls, goal.says or DONE)
    return TaskScript("", "", query, calls, answer, ())


def _add_told_goals(
    script: TaskScript, prompt: str, tools: Sequence[str], knowledge: SimulatedKnowledge
) -> TaskScript:
    """Append the goals that tool descriptions ask for to a script; the planner supplies their values."""
    goals = knowledge.find_told_goals(prompt, tools, ROLE)
    calls = [*script.calls, *(call for goal in goals for call in goal.calls)]
    texts = [script.answer, *(goal.says for goal in goals if goal.says)]
    return replace(script, calls=tuple(calls), answer="\n".join(texts))


@dataclass(frozen=True)
class _Offers:
    """Requests in tool descriptions that the planner follows."""

    twins: Mapping[str, str]
    asked: Mapping[str, str]
    """Tool -> an additional argument that holds the user's request."""

    @classmethod
    def read(cls, prompt: str, query: str, knowledge: SimulatedKnowledge) -> _Offers:
        """Read the requests from the planner's prompt."""
        parts = _TOOL.split(prompt)
        described = dict(zip(parts[1::2], parts[2::2], strict=True))
        asked = {}
        for tool, text in described.items():
            for line in text.splitlines():
                name, _, description = line.strip().partition(": ")
                if description == PARAMETER_REQUESTS["request"] and knowledge.believes(tool, name):
                    asked[tool] = f"{name}={query!r}"
        twins = find_twins(ToolSpec(tool, text, {}) for tool, text in described.items())
        return cls({name: twin for name, twin in twins.items() if knowledge.believes(twin)}, asked)


def _render_program(script: TaskScript, tools: frozenset[str], offers: _Offers) -> Iterator[str]:
    """Yield a line for each call, preceded by the questions whose answers it needs; then the answer."""
    known: dict[str, str] = {}
    for index, call in enumerate(script.calls):
        if call.function not in tools:
            continue
        written = []
        facts = [fact for fact in script.facts if fact.source < index]
        for name, value in call.args.items():
            yield from _render_queries(facts, value, known, name, call.function)
            written.append(f"{name}={_render_expression(value, known)}")
        tool = offers.twins.get(call.function, call.function)
        written += [offers.asked[tool]] if tool in offers.asked else []
        yield f"result_{index} = {tool}({', '.join(written)})"
    yield from _render_queries(script.facts, script.answer, known, None, None)
    yield f"print({_render_text(script.answer, known)})"


def _render_queries(
    facts: Iterable[Fact], value: Any, known: dict[str, str], name: str | None, tool: str | None
) -> Iterator[str]:
    forms = "\n".join(form for leaf in list_scalars(value) for form in list_leaf_forms(leaf))
    for fact in [fact for fact in facts if fact.text in forms and fact.text not in known]:
        known[fact.text] = f"value_{len(known)}"
        question = write_fact_question(fact.field, name, tool)
        yield f"{known[fact.text]} = {QUERY}({question!r} + '\\n' + str(result_{fact.source}), str)"


def _render_expression(value: Any, known: Mapping[str, str]) -> str:
    """Render a scripted value as Python: values read from results as variables, the rest as literals."""
    if isinstance(value, Mapping):
        entries = [f"{key!r}: {_render_expression(item, known)}" for key, item in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_render_expression(item, known) for item in value) + "]"
    if isinstance(value, str):
        return _render_text(value, known)
    variable = next((known[form] for form in list_leaf_forms(value) if form in known), None)
    return repr(value) if variable is None else f"{type(value).__name__}({variable})"


def _render_text(text: str, known: Mapping[str, str]) -> str:
    """Render a text in which whole words read from results are variables."""
    if not known:
        return repr(text)
    longest = sorted(known, key=len, reverse=True)
    pieces = re.split(rf"(?<!\w)({'|'.join(map(re.escape, longest))})(?!\w)", text)
    written = [known[piece] if index % 2 else repr(piece) for index, piece in enumerate(pieces) if piece]
    return " + ".join(written) or "''"


def _list_remaining_lines(lines: list[str], exchange: Sequence[ChatMessage]) -> list[str]:
    """Return the lines that have neither run in earlier attempts nor failed three times."""
    failures = 0
    for program, report in zip(exchange[::2], exchange[1::2], strict=False):
        line = _PLACE.search(text_of(report))
        if line is None or int(line[1]) == 0 or not _is_program(text_of(program)):
            continue
        ran = int(line[1]) - 1
        failures = 1 if ran else failures + 1
        lines = lines[ran:]
        if failures >= MAX_ATTEMPTS and lines:
            lines, failures = [*_render_placeholder(lines[0]), *lines[1:]], 0
    return lines


def _is_program(text: str) -> bool:
    try:
        return bool(find_program(text))
    except ProgramError:
        return False


def _render_placeholder(line: str) -> list[str]:
    name, assigned, _ = line.partition(" = ")
    return [f"{name} = {PLACEHOLDER!r}"] if assigned and name.isidentifier() else [f"print({PLACEHOLDER!r})"]


class Camel(AgentDefense):
    """CaMeL: privileged planner, interpreter with capabilities, quarantined model, policies.

    Args:
        mode: `normal`: control dependencies count at calls; `strict`: they are joined into every assigned
            value too, and what the quarantined model has read stays one.
        enforcement: `live`: policies judge each call as it is made. `replay`: the task is first run on a copy
            of the environment without policies, and what was recorded is then run again with them, as in the
            published numbers. `off`: no policies.
        as_published: Keep the slips of the reference's policies and labels that numbers depend on.
        attempts: Most programs for one task.
        empty_replies: Most questions for a program that is not empty.
        query_attempts: Most questions to the quarantined model for one answer.

    Source: Debenedetti et al., arXiv 2503.18813.
    """

    roles: ClassVar[Mapping[str, SimulatedRole]] = {ROLE: play_camel_planner, READER: play_quarantined_model}
    texts: ClassVar[Mapping[str, str]] = {
        "planner": PROGRAM_CONTRACT.prompt,
        **PROMPTS,
        **QUERY_CONTRACT.list_texts(),
    }

    whole_program = True

    def __init__(self, name: str = "camel", **options: Any) -> None:
        self.name = name
        self.settings = check_options(CamelSettings, name, options)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case. The returned conversation is a record; the planner's stays inside."""
        agent = CamelAgent(model, self.settings, suite.name, default_system_message(suite))
        return make_named_pipeline(f"{model.name}-{self.name}", InitQuery(), agent)

    def description(self) -> str:
        """Describe what planner, quarantined model and policies see, and what ends a run."""
        parts = [
            "A planner model sees the request and the tools, and writes a program before anything is read.",
            "It never sees what a tool returns: of a program that fails it learns the line, the kind of"
            " error, and the text only if no tool had a part in it.",
            "An interpreter runs the program on values that know where they came from and who may read them.",
            "A quarantined model without tools turns text into values of a declared type, which stay"
            " untrusted.",
            *_describe_policies(self.settings),
            f"After {self.settings.attempts} failed programs the task ends without an answer.",
        ]
        return " ".join(parts)


def _describe_policies(settings: CamelSettings) -> list[str]:
    if settings.enforcement == "off":
        return ["No policy judges the calls."]
    control = (
        "What a branch or loop depended on counts for everything assigned in it and for the calls in it."
        if settings.mode == "strict"
        else "What a branch or loop depended on counts for the calls in it, not for what is assigned in it."
    )
    sentences = [
        "Before a tool that changes something runs, a policy of the suite looks at where its arguments came"
        " from and who may read them; a call it does not allow ends the task.",
        control,
    ]
    if settings.enforcement == "replay":
        sentences.append("Policies look at a second run of programs that were recorded without them.")
    if settings.as_published:
        sentences.append("Policies and labels keep the slips of the reference implementation.")
    return sentences
