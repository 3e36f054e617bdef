"""`PlannedModel`: a model that is led through ASB's conversation while the defense around it just asks.

AgentDojo's conversation is one user turn with tools until done. ASB's is a plan turn without tools, then one
user turn and one model call for each step of the plan. Defenses know the former alone, and they attach to
messages and calls, not to turns. So the plan and the steps live in a model that stands between the defense
and the real one:

* the defense's first request makes it ask for a plan, then go on to the first step;
* a reply with tool calls goes back to the defense, whose loop runs them: that was the step's one round, and
  the next request, which brings the results, goes on with the next step;
* a reply in words is the step's outcome, and the next step is asked about at once;
* after the last step's results the conversation is closed without a call.

Requests of roles that do not act for the user (a defense's planner, judge, worker, masked pass) go through
untouched. What differs from ASB: tool calls are refused or rewritten by the defense in between and still use
up their step; a tool that does not exist is answered with an error once, not tried ten times; the plan is
asked for again by a user's turn. See docs/asb.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.asb import conversation
from agentsys.benchmarks.asb.conversation import Conversation, Handed
from agentsys.benchmarks.asb.environment import PlanStep, set_turn
from agentsys.benchmarks.asb.plan import Step
from agentsys.benchmarks.asb.plan_prompt import CLOSING, NO_PLAN, instruction, step_turn
from agentsys.benchmarks.asb.planner import plan_turn
from agentsys.benchmarks.asb.rendering import Rendering, thought
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ToolSpec, assistant, text_of, user
from agentsys.models.providers.wire_text import visible_text
from agentsys.models.tagged_calls import CALL, CallSyntaxError, between, read_calls, read_tools
from agentsys.models.trace import ACTING_ROLES, current_tracer, span

STEP_SPAN = "step"
"""Kind of the span around each step's model call; its messages are the conversation as the model read it."""
CLOSING_NAME = "closing"
"""Name of the last such span where the last step called tools: it holds their results."""


class Mode(Enum):
    """The four conversations."""

    FAITHFUL = "faithful"
    """Plan, then steps, as published: every step's tool list is made to name the attack tool."""
    CLEAN_PLAN = "clean_plan"
    """Plan, then steps; the plan stays as the planner made it and every step offers all tools."""
    HIDDEN_TOOL = "hidden_tool"
    """As `clean_plan`, and the planner is not told of the attack tool."""
    REACT = "react"
    """No plan: one user turn with tools until done, as in AgentDojo."""

    @property
    def planned(self) -> bool:
        """Whether a plan is made first."""
        return self is not Mode.REACT


def drive(model: ChatModel, *, mode: Mode, attack_tool: str | None) -> ChatModel:
    """The model as it takes part in a case's conversation.

    Args:
        model: The model of the case.
        mode: The conversation.
        attack_tool: The name of the case's attack tool; None without an attack.

    Returns:
        `model` itself in `react`, which has no plan; else a model for this one case.
    """
    set_turn(None)
    return PlannedModel(model, mode, attack_tool) if mode.planned else model


class PlannedModel:
    """Leads a model through plan and steps. Holds state: one object for one case, used by one thread.

    Args:
        model: The model that is asked.
        mode: A mode with a plan.
        attack_tool: The name of the case's attack tool; None without an attack.
    """

    def __init__(self, model: ChatModel, mode: Mode, attack_tool: str | None) -> None:
        self.model = model
        self.mode = mode
        self.attack_tool = attack_tool
        self.rendering = Rendering.ASSISTANT_TEXT if mode is Mode.FAITHFUL else Rendering.TOOL_ROLE
        self._current: Conversation | None = None

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """The next reply that the defense has something to do with: tool calls, or the last words.

        The reply's tokens are those of its own call; plan and steps before it are in the trace.

        Raises:
            ModelError: As the wrapped model does.
        """
        if request.role not in ACTING_ROLES:
            return self.model.complete(request)
        talk = self._conversation(request)
        if talk.planning.failed:
            return ChatReply(assistant(NO_PLAN))
        return self._go_on(talk, request)

    def _conversation(self, request: ChatRequest) -> Conversation:
        """The conversation that a request belongs to; a new one begins with a plan."""
        replies, task = conversation.replies_in(request.messages), conversation.task_of(request.messages)
        attempt = current_tracer().attempt
        known = self._current
        if known is not None and (known.attempt, known.task) == (attempt, task) and replies >= known.base:
            return known
        set_turn(None)
        hidden = self.attack_tool if self.mode is Mode.HIDDEN_TOOL else None
        offered = request.tools or _told_tools(request)
        told = instruction([tool for tool in offered if tool.name != hidden])
        patch = self.attack_tool if self.mode is Mode.FAITHFUL else None
        turn = plan_turn(self.model, request, conversation.with_instruction(request.messages, told), patch)
        self._current = Conversation(attempt, task, replies, told, turn.planning, turn.notes)
        return self._current

    def _go_on(self, talk: Conversation, request: ChatRequest) -> ChatReply:
        """Take up the conversation where the request's messages leave off."""
        position = len(conversation.rounds_of(request.messages, talk.base)[1])
        again = talk.handed.get(position)
        talk.handed = {place: reply for place, reply in talk.handed.items() if place < position}
        messages, step = request.messages, talk.next_step(position)
        turns: list[ChatMessage] = []
        tail: Sequence[ChatMessage] = ()
        if again is not None and len(messages) > again.asked_with:
            # Asked again with a remark on the reply (it could not be read): the same step, then the remark.
            messages, tail = messages[: again.asked_with], messages[again.asked_with :]
            step, turns = again.step, list(again.turns[:-1])
        read = talk.read_by_model(messages, self.rendering)
        if step >= len(talk.planning.followed):
            return _closed(read)
        while True:
            turns.append(user(self._turn(talk, step, request)))
            reply = self._ask(talk, step, request, [*read, *turns, *tail])
            last = step + 1 == len(talk.planning.followed)
            if last or _calls(reply.message, request) != []:
                talk.handed[position] = Handed(step, tuple(turns), len(messages))
                set_turn(PlanStep(step + 1, len(talk.planning.followed)))
                return _spoken(reply)
            turns += [*tail, thought(visible_text(reply.message))]
            tail, step = (), step + 1

    def _turn(self, talk: Conversation, step: int, request: ChatRequest) -> str:
        plan = talk.planning.followed
        forbid = not request.tools and not self._offers_tools(plan[step])
        return step_turn(talk.planning.tries + step + 1, plan[step], forbid_tools=forbid)

    def _offers_tools(self, step: Step) -> bool:
        """Officially a step without tools is offered none; elsewhere it could not be attacked then."""
        return self.mode is not Mode.FAITHFUL or bool(step.tool_use)

    def _ask(
        self, talk: Conversation, step: int, request: ChatRequest, messages: list[ChatMessage]
    ) -> ChatReply:
        """One step's one call, under a span that holds it."""
        offered = self._offers_tools(talk.planning.followed[step])
        tools = request.tools if offered else ()
        with span(STEP_SPAN, str(step + 1)) as opened:
            opened.messages = messages
            reply = self.model.complete(replace(request, messages=tuple(messages), tools=tools))
            if not tools and reply.message["tool_calls"]:
                # Nothing was on offer: a call made up all the same is not made.
                reply = replace(reply, message={**reply.message, "tool_calls": None})
            opened.messages = [*messages, reply.message]
            opened.decision = {
                "step": step + 1,
                "of": len(talk.planning.followed),
                "tools_offered": offered,
                "called": [call.function for call in _calls(reply.message, request) or ()],
            }
        return reply


def _told_tools(request: ChatRequest) -> list[ToolSpec]:
    """The tools that stand in a system message, where a defense offers them so."""
    systems = [text_of(message) for message in request.messages if message["role"] == "system"]
    return [tool for text in systems for tool in read_tools(text)]


def _calls(message: ChatAssistantMessage, request: ChatRequest) -> list[FunctionCall] | None:
    """The calls of a reply; None if there are some that cannot be read, which is the defense's business.

    Where tools stand in a system message, calls stand in the text.
    """
    if message["tool_calls"]:
        return list(message["tool_calls"])
    said = visible_text(message)
    if f"<{CALL}>" not in said or request.tools or not _told_tools(request):
        return []
    written = between(said, CALL)
    try:
        return None if written is None else read_calls(written)
    except CallSyntaxError:
        return None


def _spoken(reply: ChatReply) -> ChatReply:
    """The reply, with words where it is empty: AgentDojo runs a pipeline again that ends with nothing."""
    if reply.message["tool_calls"] or visible_text(reply.message):
        return reply
    return replace(reply, message=assistant(CLOSING))


def _closed(read: Sequence[ChatMessage]) -> ChatReply:
    """The end after a last step that called tools.

    No call is made, as in ASB, which asks for no closing answer; but AgentDojo scores only conversations
    that end with an assistant's message, and runs a pipeline again whose last message is empty.
    """
    closing = assistant(CLOSING)
    with span(STEP_SPAN, CLOSING_NAME) as opened:
        opened.messages = [*read, closing]
    return ChatReply(closing)
