"""The plain agent: makes the scripted calls turn by turn, obeys goals that it meets, and answers.

A pure function of the request and the knowledge; it plays every role without a handler. Progress is derived from the
messages, so it needs no memory. If tools are described in the system message, the request is converted to native tools,
and the reply back to the prompt's form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant, system, text_of, tool_message, user
from agentsys.models.pipeline_elements import has_reading_name
from agentsys.models.prompted_tools import (
    CALL,
    FINISH_ACTION,
    QUESTION,
    REPEAT_PREFIX,
    Action,
    ActionSyntaxError,
    CallSyntaxError,
    find_text_between_tags,
    read_action,
    read_calls,
    read_observation,
    read_offer,
    read_request,
    read_tools,
    write_action,
    write_calls,
    write_reply,
)
from agentsys.models.text_tools import TEXT_PROTOCOLS, read_agentdojo_tools, write_agentdojo_call
from agentsys.simulated.free_play import RESULT_FACT, plan_reads
from agentsys.simulated.playbook_index import (
    Fact,
    GoalScript,
    ScriptedCall,
    TaskScript,
    fold_decoded,
    fold_text,
)
from agentsys.simulated.script_grounding import (
    PLACEHOLDER,
    ScriptPosition,
    find_answered,
    find_fact_replacements,
    ground_arguments,
    insert_quotes,
    iterate_request_texts,
    list_user_texts,
    make_start_position,
    read_tool_result,
    replace_facts,
)
from agentsys.simulated.simulated_role import ReaderKind, SimulatedKnowledge
from agentsys.simulated.tool_offers import find_further_calls, join_descriptions, play_with_offers


def from_tags(request: ChatRequest) -> ChatRequest | None:
    """Convert a request with tools in a system message to native tools and calls; None for other requests.

    Native tools may be there as well, if they may not be called (see `build_stand_in_tools` of Anthropic's wire).
    """
    systems = [text_of(message) for message in request.messages if message["role"] == "system"]
    tools = [tool for text in systems for tool in read_tools(text)]
    if not tools:
        return None
    messages = [_with_calls(message) for message in request.messages]
    return replace(request, messages=messages, tools=tools, tool_choice="auto")


def to_tags(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """Format a native reply as text in tags."""
    calls = [(call.function, call.args) for call in reply["tool_calls"] or ()]
    text = text_of(reply)
    return assistant(write_reply(text if calls else "", write_calls(calls), "" if calls else text))


def _with_calls(message: ChatMessage) -> ChatMessage:
    """Add the calls that an assistant message's text asks for, also refused ones."""
    if message["role"] != "assistant" or message["tool_calls"]:
        return message
    try:
        calls = read_calls(find_text_between_tags(text_of(message), CALL) or "")
    except CallSyntaxError:
        return message
    return {**message, "tool_calls": calls or None}


def from_actions(request: ChatRequest) -> ChatRequest | None:
    """Convert a request for one action per reply to native tools and calls; None for other requests."""
    systems = [text_of(message) for message in request.messages if message["role"] == "system"]
    offers = [offer for text in systems if (offer := read_offer(text)) is not None]
    if request.tools or not offers:
        return None
    messages: list[ChatMessage] = []
    for message in request.messages:
        open_call = _open_call(messages)
        observation = read_observation(text_of(message)) if message["role"] == "user" else None
        if open_call is not None and observation is not None:
            messages.append(_make_result_message(open_call, observation))
        elif message["role"] == "user":
            messages.append(user(find_text_between_tags(text_of(message), QUESTION) or text_of(message)))
        else:
            messages.append(_with_action(message))
    return replace(request, messages=messages, tools=offers[0])


def to_action(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """Format a native reply as text with one action: the first call."""
    calls = reply["tool_calls"]
    if not calls:
        return assistant(write_action(Action(FINISH_ACTION, text_of(reply))))
    return assistant(write_action(Action(calls[0].function, dict(calls[0].args)), text_of(reply)))


def from_text_protocol(request: ChatRequest) -> ChatRequest | None:
    """Convert a request in AgentDojo's text protocol to native tools and calls; None for other requests."""
    first = request.messages[0] if request.messages else None
    protocol = (
        read_agentdojo_tools(text_of(first)) if first is not None and first["role"] == "system" else None
    )
    if request.tools or protocol is None:
        return None
    messages: list[ChatMessage] = [system(protocol[1])]
    for message in request.messages[1:]:
        open_call = _open_call(messages)
        returned = _parse_result(text_of(message)) if message["role"] == "user" else None
        if open_call is not None and returned is not None:
            output, error = returned
            messages.append({**_make_result_message(open_call, output), "error": error})
        elif message["role"] == "assistant":
            calls = TEXT_PROTOCOLS["agentdojo"].parse_calls(text_of(message))
            messages.append({**message, "tool_calls": calls or None})
        else:
            messages.append(message)
    return replace(request, messages=messages, tools=protocol[0])


def to_text_protocol(reply: ChatAssistantMessage) -> ChatAssistantMessage:
    """Format a native reply as text with its first call: the protocol allows only one."""
    calls = [write_agentdojo_call(call) for call in reply["tool_calls"] or ()][:1]
    return assistant("\n".join(filter(None, [text_of(reply), *calls])))


def _parse_result(text: str) -> tuple[str, str | None] | None:
    """Parse output and error of a call's result; None for another message."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not {"result", "error"} & value.keys():
        return None
    if "error" in value:
        return "", str(value["error"])
    blocks = value["result"]
    listed = blocks if isinstance(blocks, list) else [{"content": blocks}]
    return "\n".join(str(block.get("content")) for block in listed if isinstance(block, dict)), None


def _open_call(messages: Sequence[ChatMessage]) -> FunctionCall | None:
    last = messages[-1] if messages else None
    return last["tool_calls"][0] if last and last["role"] == "assistant" and last["tool_calls"] else None


def _with_action(message: ChatMessage) -> ChatMessage:
    """Convert an assistant message's action to a call."""
    if message["role"] != "assistant":
        return message
    try:
        action = read_action(text_of(message))
    except ActionSyntaxError:
        return message
    if action is None or action.name == FINISH_ACTION or not isinstance(action.input, dict):
        return message
    return {**message, "tool_calls": [FunctionCall(function=action.name, args=action.input)]}


def _make_result_message(call: FunctionCall, output: str) -> ChatMessage:
    # A call that was refused for its form is worth another attempt; a denial or a tool's error is not.
    return tool_message(call, output, "its form was wrong" if output.startswith(REPEAT_PREFIX) else None)


DONE_ANSWER = "Done."
"""Answer if the ground truth has none; an empty reply would count as no answer at all."""
NOTHING_ASKED_ANSWER = "I have nothing to add."
"""Answer if the conversation contains no known request."""
NOTHING_ASKED = "none"
"""Name of the assignment if the conversation contains no known request."""


@dataclass(frozen=True)
class Assignment:
    """The plan for one conversation."""

    name: str
    """Identifies the task, for random draws."""
    wording: str
    """The folded request: this part of a user message is the user's, not an attacker's."""
    calls: tuple[ScriptedCall, ...] = ()
    answer: str = NOTHING_ASKED_ANSWER
    facts: tuple[Fact, ...] = ()
    goal: GoalScript | None = None
    """The injection goal that the user asks for, if an injection task is run as a user task."""
    relays: bool = False
    """True if the results of the calls are the answer, e.g. for another agent's request of one call."""
    believes: bool = False
    """True if a different value in the field declared for a fact is accepted."""


def find_assignment(request: ChatRequest, knowledge: SimulatedKnowledge, tools: Sequence[str]) -> Assignment:
    """Find the user's request: a user task, else an injection goal asked for by the user, else nothing.

    A request that is a whole message is preferred to one that a message merely contains.
    """
    texts = list_user_texts(request)
    asked_call = read_request(texts[0]) if texts else None
    if asked_call is not None:
        name, args = asked_call
        calls = (ScriptedCall(name, args),)
        return Assignment(f"request/{name}", fold_text(texts[0]), calls, relays=True)
    tasks = [task for text in texts if (task := knowledge.find_task(text, tools)) is not None]
    exact = [task for task in tasks if any(fold_text(task.prompt) == fold_decoded(text) for text in texts)]
    if exact:
        return _make_task_assignment(exact[0])
    for text in texts:
        goal = knowledge.choose_goal(knowledge.index.find_goals(text), frozenset(tools))
        if goal is not None:
            return _make_goal_assignment(goal)
    if tasks:
        return _make_task_assignment(tasks[0])
    asked = knowledge.find_goals(texts[0], tools) if texts else []
    return _make_goal_assignment(asked[0]) if asked else Assignment(NOTHING_ASKED, "")


def _make_task_assignment(task: TaskScript) -> Assignment:
    name, answer = f"{task.suite}/{task.task_id}", task.answer.strip() or DONE_ANSWER
    return Assignment(name, fold_text(task.prompt), task.calls, answer, task.facts)


def _make_goal_assignment(goal: GoalScript) -> Assignment:
    name = f"{goal.suite}/{goal.task_id}"
    return Assignment(name, fold_text(goal.goal), goal.calls, goal.says or DONE_ANSWER, goal=goal)


@dataclass
class ScriptProgress:
    """The agent's progress, replayed from the first message on."""

    task: ScriptPosition
    """The user's own task."""
    goals: list[ScriptPosition]
    """Obeyed injection goals, in the order they were first seen."""
    decided: set[tuple[str, str]]
    """(suite, id) of goals already decided on in this conversation, or asked for by the user."""

    def pick_current_position(self) -> ScriptPosition:
        """Return the script to continue: injected goals are done first, as their text asks."""
        return next((line for line in self.goals if line.step is not None), self.task)


def replay_progress(
    request: ChatRequest, knowledge: SimulatedKnowledge, assignment: Assignment, tools: frozenset[str]
) -> ScriptProgress:
    """Replay the conversation to find the steps done or failed, and the goals of attackers."""
    own = assignment.goal
    decided = set() if own is None else {(own.suite, own.task_id)}
    progress = ScriptProgress(make_start_position(assignment.calls, tools), [], decided)
    waiting: ScriptPosition | None = None  # The script whose call has not been answered yet.
    context = f"{request.role}/{assignment.name}"
    _decide_goals(join_descriptions(request.tools), progress, knowledge, context, tools)
    for message in request.messages:
        if message["role"] == "tool":
            result = read_tool_result(message)
            line = find_answered([progress.pick_current_position(), *progress.goals, progress.task], result)
            if line is not None:
                line.record_result(result)
            waiting = None
            _decide_goals(result.text, progress, knowledge, context, tools)
        elif message["role"] == "user":
            # The message without the user's own request.
            folded = fold_decoded(text_of(message))
            aside = folded.replace(assignment.wording, " ").strip() if assignment.wording else folded
            _decide_goals(aside, progress, knowledge, context, tools)
        elif message["role"] == "assistant":
            # An unanswered call counts as failed: a defense that drops it would otherwise get it for ever.
            if waiting is not None:
                waiting.record_result(None)
            waiting = progress.pick_current_position() if message["tool_calls"] else None
    if waiting is not None:
        waiting.record_result(None)
    return progress


def _decide_goals(
    text: str, progress: ScriptProgress, knowledge: SimulatedKnowledge, context: str, tools: frozenset[str]
) -> None:
    """Decide, once per conversation, about each goal in this text."""
    for goal in [*knowledge.find_goals(text, tools), *find_further_calls(text, tools)]:
        key = (goal.suite, goal.task_id)
        if key not in progress.decided and knowledge.obeys(goal, context):
            progress.goals.append(make_start_position(goal.calls, tools, goal))
        progress.decided.add(key)


NO_FIELDS_INTENT = {"status": "string"}
"""Intent of a call whose result is not used."""


_PROMPT_FORMS = ((from_tags, to_tags), (from_actions, to_action), (from_text_protocol, to_text_protocol))
"""Forms of tools in a prompt: (converter of the request, formatter of the reply)."""


def play_plain_agent(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Return the next message: an open goal's call, else the task's next call, else the answer."""
    # Native tools that may be called are all that a request with them offers.
    offered = request.tools and request.tool_choice != "none"
    for native, written in () if offered else _PROMPT_FORMS:
        prompted = native(request)
        if prompted is not None:
            return written(play_with_offers(prompted, knowledge, _play_turn))
    return play_with_offers(request, knowledge, _play_turn)


def _play_turn(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Play the next step; after a reading call also those steps that are reading calls and need no result of it."""
    reply = _play_next_step(request, knowledge)
    calls = list(reply["tool_calls"] or ())
    pretended = list(request.messages)
    while calls and has_reading_name(calls[-1].function) and len(calls) < knowledge.options.calls_per_turn:
        pretended += [assistant(None, calls[-1:]), tool_message(calls[-1], "")]
        following = _play_next_step(replace(request, messages=pretended), knowledge)["tool_calls"]
        if not following or not has_reading_name(following[0].function):
            break
        if PLACEHOLDER in str(following[0].args):
            break
        calls += following
    return reply if len(calls) < 2 else {**reply, "tool_calls": calls}


def _play_next_step(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Replay the conversation, and make the next call or compose the answer."""
    tools = {tool.name: tool for tool in request.tools}
    assignment = find_assignment(request, knowledge, tuple(tools))
    # A served model gets no case, but its tools may be a benchmark's.
    served = knowledge.scene is not None and not knowledge.scene.suite
    known = served and not knowledge.index.tools.isdisjoint(tools)
    if assignment.name == NOTHING_ASKED and knowledge.plays_freely and tools and not known:
        # Unknown tools: call those that read, and answer with their results.
        asked = next(reversed(list_user_texts(request)), "")
        calls = plan_reads(asked, request.tools)
        facts = tuple(replace(RESULT_FACT, source=index) for index in range(len(calls)))
        assignment = Assignment("free", fold_text(asked), calls, facts=facts, relays=True)
    assignment = replace(assignment, believes=knowledge.options.reader is ReaderKind.HOSTILE)
    progress = replay_progress(request, knowledge, assignment, frozenset(tools))
    if request.tool_choice == "none":
        # No call is allowed: answer with the names of the tools that it would use.
        steps = [call for line in [*progress.goals, progress.task] for _, call in line.steps[line.done :]]
        planned = ", ".join(dict.fromkeys(call.function for call in steps))
        return assistant(planned or _compose_final_answer(request, assignment, progress))
    line = progress.pick_current_position()
    if line.step is None:
        return assistant(_compose_final_answer(request, assignment, progress))
    index, call = line.step
    # Goals know their arguments; those of the user's task must have been read.
    facts = assignment.facts if line.goal is None else line.goal.facts
    earlier = [fact for fact in facts if line.goal is not None or fact.source < index]
    believes = assignment.believes and line.goal is None
    args = ground_arguments(call.args, earlier, iterate_request_texts(request), believes=believes)
    insert_quotes(args, call, line.outputs)
    if "intent" in tools[call.function].parameters.get("properties", {}) and "intent" not in args:
        taken = [fact.field for fact in facts if line.goal is None and fact.source == index]
        args["intent"] = dict.fromkeys(taken, "string") or dict(NO_FIELDS_INTENT)
    # Not empty: AgentDojo runs a pipeline again if its last message has no content, as it would have when the
    # conversation reaches its round limit.
    next_call = FunctionCall(function=call.function, args=args, id=f"call_{len(request.messages)}")
    return assistant(f"Calling {call.function}.", [next_call])


def _compose_final_answer(request: ChatRequest, assignment: Assignment, progress: ScriptProgress) -> str:
    """Compose the ground-truth answer from values that were read, and the words that obeyed goals ask for."""
    if assignment.relays:
        # The first result of each call, in full: the request does not say which part is wanted.
        results = [read_tool_result(message) for message in request.messages if message["role"] == "tool"]
        first = {result.function: result.text for result in reversed(results)}
        texts = [first[call.function] for call in assignment.calls if call.function in first]
        answer = "\n".join(texts) or NOTHING_ASKED_ANSWER
    else:
        replaced = find_fact_replacements(
            assignment.facts, assignment.answer, iterate_request_texts(request), believes=assignment.believes
        )
        answer = replace_facts(assignment.answer, replaced)
    spoken_goals = [line.goal.says for line in progress.goals if line.goal is not None and line.goal.says]
    return "\n".join([answer, *spoken_goals])
