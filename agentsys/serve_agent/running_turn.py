"""`RunningTurn`: the work on one request of the user, in a thread that waits while the client runs tools.

A pipeline is synchronous code of anybody's, so a turn that waits for its client keeps its thread: running it
again from kept replies would cost more with every round and take every defense to be deterministic. What
clients may leave waiting is bounded by the quota of their key; requests themselves hold no thread.
"""

from __future__ import annotations

import json
import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import astuple, dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.errors import ConfigError
from agentsys.models.chat import ModelError, ToolSpec, Usage, assistant
from agentsys.models.loose_json import find_json_values
from agentsys.models.serving.wire_format import Problem, RequestRefused, TracedReply, WireRequest
from agentsys.models.trace import Tracer
from agentsys.serve_agent.client_tools import ToolFailed, UnusableTool, build_client_functions, find_misfit
from agentsys.serve_agent.defended_agent import ClientTurn, ConversationEnded, DefendedAgent, Dialogue
from agentsys.serve_agent.request_position import ANSWER_ID, CALL_ID, RequestPosition, ToolAnswer

_LOG = logging.getLogger(__name__)

THREAD_NAME = "turn"
"""Beginning of the names of turns' threads."""
_NO_MORE_CALLS = "The client takes no further tool calls; answer with what there is."
_NOT_OFFERED = "The client does not offer this tool any more."
_ANSWER_TOOLS = ("final_answer", "final_result")


@dataclass
class Handout:
    """Calls that wait for their results, or had them."""

    turn: RunningTurn
    calls: Mapping[str, tuple[str, dict[str, Any]]]
    """By id: tool and arguments."""
    reply: Future[TracedReply] | None = None
    """The reply to their results; None: these have not come."""


class RunningTurn:
    """One request of the user at work.

    Args:
        agent: The agent that answers.
        keep: Stores the dialogue, before the client has the answer.
        request: What it begins with.
        start: The same as the agent is given it; what the client can do is added here.
        offer: Is told of each hand-out before the client is.
        finish: Is told when it is over, before the client is.
        idle_s: Seconds that it waits for a client's results.
        rounds: Rounds of calls that the client takes; None: any number.
    """

    def __init__(
        self,
        agent: DefendedAgent,
        keep: Callable[[Dialogue], None],
        request: WireRequest,
        start: ClientTurn,
        offer: Callable[[Handout], None],
        finish: Callable[[RunningTurn], None],
        idle_s: float,
        rounds: int | None = None,
    ) -> None:
        self._agent, self._store, self._offer, self._finish = agent, keep, offer, finish
        self._idle_s, self._rounds_left = idle_s, rounds
        self.dialogue = Dialogue()
        self.size = request.size
        """Bytes of its requests."""
        self.last_heard_s = time.monotonic()
        """When its client was last heard of."""
        self.handouts: list[Handout] = []
        self.reply: Future[TracedReply] = Future()
        """The reply to the request that came last."""
        self.is_over = False
        self.cpu_s = 0.0
        """CPU seconds of its thread, that are not booked yet."""
        self._cpu_booked_s = 0.0
        self._lock, self._one_at_a_time = threading.Lock(), threading.Lock()
        self._inbox: queue.SimpleQueue[Mapping[str, ToolAnswer] | str] = queue.SimpleQueue()
        self._ended: str | None = None
        self._answer_tool = find_answer_tool(request)
        self._offered = self._list_offered(request)
        self._first_tools = {tool.name for tool in request.tools}
        self._system_text = start.system_text
        self._early: dict[str, list[ToolAnswer]] = {}
        self._reported_usage = Usage()
        self._thread = threading.Thread(
            target=self._run,
            args=(request, start),
            name=f"{THREAD_NAME}-{self.dialogue.trace_id}",
            daemon=True,
        )

    @property
    def trace_id(self) -> str:
        """Its id."""
        return self.dialogue.trace_id

    @property
    def is_spoilt(self) -> bool:
        """Whether it ended without an answer, so that nothing can go on from it."""
        return self.is_over and self.dialogue.error_kind is not None

    def begin(self) -> Future[TracedReply]:
        """Start it; its first reply."""
        self._thread.start()
        return self.reply

    def resume(
        self, handout: Handout, position: RequestPosition, request: WireRequest
    ) -> Future[TracedReply]:
        """Give it the results of its calls. Results that come again are not read: the first ones count.

        Raises:
            RequestRefused: If they are not those of the calls that wait, or it is over.
        """
        with self._lock:
            self.last_heard_s = time.monotonic()
            if handout.reply is not None:
                return handout.reply
            ids = dict(zip(position.call_ids, handout.calls, strict=False))
            answers = {ids.get(one, one): answer for one, answer in position.answers}
            if answers.keys() != handout.calls.keys() or len(position.answers) != len(answers):
                raise self.refuse(400, "each of the calls that wait takes one result, all in one request")
            if self.is_over or self._ended is not None:
                raise self.refuse_over()
            if self._is_handed_over(position, request):
                why = (
                    "another agent of the client goes on: agents that hand over to each other are not served"
                )
                self._end(why)
                raise self.refuse(409, f"{why}; give each a conversation of its own, as a tool", "handoff")
            self.size += request.size
            self._offered = self._list_offered(request)
            self.reply = handout.reply = Future()
            self._inbox.put(answers)
            return self.reply

    def end(self, why: str) -> None:
        """End it from outside; its thread stops where it next asks a tool or a model."""
        with self._lock:
            self._end(why)

    def join(self) -> None:
        """Wait for its thread."""
        self._thread.join()

    def refuse(self, status: int, why: str, code: str | None = "out_of_place") -> RequestRefused:
        """A refusal that bears its trace."""
        return RequestRefused(Problem(status, why, code=code), self.trace_id)

    def refuse_over(self) -> RequestRefused:
        """The refusal of a request that would go on from it, where it has ended without an answer."""
        kind = self.dialogue.error_kind
        why = self.dialogue.error if kind == "conversation_ended" else "its agent failed"
        return self.refuse(409, f"this conversation is over: {self._ended or why}; begin a new one", "over")

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self._inbox.put(why)

    def _list_offered(self, request: WireRequest) -> frozenset[str]:
        """The tools that a request lets the agent call."""
        answer = self._answer_tool
        if request.tool_choice == "none" or (answer is not None and request.forced == answer.name):
            return frozenset()
        return frozenset(tool.name for tool in request.tools if answer is None or tool.name != answer.name)

    def _is_handed_over(self, position: RequestPosition, request: WireRequest) -> bool:
        tools = {tool.name for tool in request.tools}
        return position.system_text != self._system_text and tools != self._first_tools

    def _run(self, request: WireRequest, start: ClientTurn) -> None:
        """The turn, in its thread: stored before anybody is told that it is over."""
        failure: Exception | None = None
        try:
            failure = self._find_answer(request, start)
        except ModelError as error:
            failure = error
        except BaseException:
            failure = self.refuse(500, "the agent behind this server failed; see its log", None)
            raise
        finally:
            try:
                self._store(self.dialogue)
            except ConfigError as error:
                _LOG.error("turn %s is not stored: %s", self.trace_id, error)
                self.dialogue.error_kind, self.dialogue.error = "store", str(error)
                failure = self.refuse(500, "this conversation cannot be stored; see the server's log", None)
            self._book_cpu()
            self._finish(self)
            with self._lock:
                self.is_over = True
            if self.reply.done():
                pass  # Its client has stayed away.
            elif failure is not None:
                self.reply.set_exception(failure)
            else:
                self.reply.set_result(self._build_reply(self._answer_calls()))
            # It is stored: what is kept to go on from is what was said.
            self.dialogue = replace(self.dialogue, tracer=Tracer())

    def _find_answer(self, request: WireRequest, start: ClientTurn) -> Exception | None:
        """Work on the request; what went wrong, if something did."""
        try:
            tools = [tool for tool in request.tools if tool.name in self._offered]
            functions = build_client_functions(tools, self._run_tool, start.owner)
        except UnusableTool as slip:
            self.dialogue.error_kind, self.dialogue.error = "bad_request", str(slip)
            self.dialogue.requests.append(start.user_text)
            return self.refuse(400, str(slip), None)
        turn = replace(
            start,
            functions=functions,
            reply_schema=request.reply_schema if self._answer_tool is None else self._answer_tool.parameters,
            check=self._check_alive,
            hand_out=None if request.one_call else self._hand_out,
        )
        self._agent.run_turn(self.dialogue, turn)
        if self._answer_tool is not None and self.dialogue.error_kind is None and self._fit() is None:
            self._ask_again(turn, self._answer_tool)
            if self.dialogue.error_kind is None and self._fit() is None:
                self.dialogue.error_kind = "misfit"
                why = f"the agent's answer is not one of the schema of {self._answer_tool.name}"
                self.dialogue.error = why
                return self.refuse(422, why, None)
        return self._build_failure()

    def _build_failure(self) -> Exception | None:
        match self.dialogue.error_kind:
            case None:
                return None
            case "conversation_ended":
                return self.refuse_over()
            case "run_budget":
                return self.refuse(402, "the budget of this server is used up", None)
            case "config":
                return self.refuse(400, str(self.dialogue.error), None)
        return self.refuse(500, "the agent behind this server failed; its record says why", None)

    def _ask_again(self, turn: ClientTurn, tool: ToolSpec) -> None:
        if not self._agent.one_turn_only:
            schema = json.dumps(tool.parameters)
            words = f"Give that answer again, as one JSON object of this schema and nothing else: {schema}"
            before = self.dialogue.messages
            self._agent.run_turn(
                self.dialogue, replace(turn, user_text=words, before=before, goes_on=True, functions=())
            )

    def _fit(self) -> dict[str, Any] | None:
        """The agent's answer as arguments of the client's answer schema; None if it is none."""
        assert self._answer_tool is not None
        text, schema = self.dialogue.answer or "", self._answer_tool.parameters
        found = [value for value in find_json_values(text) if isinstance(value, dict)]
        for value in found:
            if find_misfit(self._answer_tool, value) is None:
                return value
        names = list(schema.get("properties") or ())
        alone = {names[0]: text} if len(names) == 1 and text and not found else None
        return alone if alone is not None and find_misfit(self._answer_tool, alone) is None else None

    def _answer_calls(self) -> list[FunctionCall]:
        if self._answer_tool is None:
            return []
        name, args = self._answer_tool.name, self._fit() or {}
        return [FunctionCall(function=name, args=args, id=f"{ANSWER_ID}{secrets.token_hex(16)}")]

    def _build_reply(self, calls: Sequence[FunctionCall]) -> TracedReply:
        usage, before = self.dialogue.usage, self._reported_usage
        self._reported_usage = usage
        spent = Usage(*(now - then for now, then in zip(astuple(usage), astuple(before), strict=True)))
        message = assistant(None if calls else self.dialogue.answer, list(calls) or None)
        return TracedReply(message, spent, model_id=self.dialogue.model_id, trace=self.trace_id)

    def _run_tool(self, tool: str, args: dict[str, Any]) -> str:
        """Have the client run a tool. Called from the pipeline's thread.

        Raises:
            ToolFailed: If the tool failed at the client's.
            ConversationEnded: If no result came.
        """
        early = self._early.get(_call_key(tool, args))
        answer = early.pop(0) if early else self._ask_client([(tool, args)])[0]
        if answer.error is not None:
            raise ToolFailed(answer.error)
        return answer.text

    def _hand_out(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._early = {}
        for (tool, args), answer in zip(calls, self._ask_client(calls), strict=True):
            self._early.setdefault(_call_key(tool, args), []).append(answer)

    def _ask_client(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[ToolAnswer]:
        if not self._offered or self._rounds_left == 0:
            return [ToolAnswer("", _NO_MORE_CALLS) for _ in calls]
        if self._rounds_left is not None:
            self._rounds_left -= 1
        wanted = [(f"{CALL_ID}{secrets.token_hex(16)}", call) for call in calls]
        possible = {id: call for id, call in wanted if call[0] in self._offered}
        answers = self._wait_for_answers(possible) if possible else {}
        return [answers.get(id, ToolAnswer("", _NOT_OFFERED)) for id, _ in wanted]

    def _wait_for_answers(self, calls: Mapping[str, tuple[str, dict[str, Any]]]) -> Mapping[str, ToolAnswer]:
        made = [FunctionCall(function=tool, args=args, id=id) for id, (tool, args) in calls.items()]
        # Defenses may run tools from threads of their own; clients are asked one hand-out after the other.
        with self._one_at_a_time:
            self._check_alive()
            handout = Handout(self, calls)
            self.handouts.append(handout)
            self._book_cpu()
            self._offer(handout)
            self.reply.set_result(self._build_reply(made))
            try:
                answers = self._inbox.get(timeout=self._idle_s)
            except queue.Empty:
                self.end(f"no result of a tool came for {self._idle_s:g} s")
            self._check_alive()
            assert not isinstance(answers, str)
            return answers

    def _check_alive(self) -> None:
        """Go no further in a turn that was ended.

        Raises:
            ConversationEnded: If it was.
        """
        if self._ended is not None:
            raise ConversationEnded(self._ended)

    def _book_cpu(self) -> None:
        now = time.thread_time()
        self.cpu_s += max(0.0, now - self._cpu_booked_s)
        self._cpu_booked_s = now


def find_answer_tool(request: WireRequest) -> ToolSpec | None:
    """The client's answer schema, where it demands a call: the tool it names, or the one for its answer.

    Clients that demand any call bring their answer's schema as the last tool, or under a name for it.

    Raises:
        RequestRefused: If the tool that it names is none of its tools.
    """
    if not request.forced:
        return None
    names = [request.forced] if request.forced != "required" else _ANSWER_TOOLS
    tool = next((tool for tool in request.tools if tool.name in names), None)
    if tool is None and request.forced == "required" and request.tools:
        tool = request.tools[-1]
    if tool is None:
        why = f"tool_choice {request.forced[:60]!r}: no tool of that name is offered"
        raise RequestRefused(Problem(400, why, code="unsupported_tool_choice"))
    return tool


def _call_key(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True, default=str)
