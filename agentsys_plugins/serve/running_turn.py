"""`RunningTurn`: the work on one request of the user, in a thread that waits while the client runs tools.

A pipeline is synchronous code of anybody's, so a turn that waits for its client keeps its thread: running it
again from kept replies would cost more with every round and take every defense to be deterministic. What
clients may leave waiting is bounded by the quota of their key; requests themselves hold no thread.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.base.json_values import to_json_bytes
from agentsys.errors import ConfigError
from agentsys.models.chat import ModelError, ToolSpec, Usage, assistant
from agentsys.models.endings import Ending
from agentsys.models.trace import ACTING_ROLES, Tracer
from agentsys.records.served_call_ids import ANSWER, TOOL, make_call_id
from agentsys_plugins.serve.answer_form import ASK_AGAIN, AnswerForm, list_untrusted_fields
from agentsys_plugins.serve.client_tools import ToolFailed, UnusableTool, build_client_functions
from agentsys_plugins.serve.defended_agent import ClientTurn, ConversationEnded, DefendedAgent, Dialogue
from agentsys_plugins.serve.request_position import RequestPosition
from agentsys_plugins.serve.served_model.json_check import find_bad_schema
from agentsys_plugins.serve.served_model.wire_format import RequestRefused, TracedReply, WireRequest

_LOG = logging.getLogger(__name__)

_NO_MORE_CALLS = "The client takes no further tool calls; answer with what there is."
_NOT_OFFERED = "The client does not offer this tool any more."
_ANSWER_TOOLS = ("final_answer", "final_result")


@dataclass
class Handout:
    """A call that waits for its result, or had it."""

    turn: RunningTurn
    call_id: str
    call: tuple[str, dict[str, Any]]
    """Tool and arguments."""
    reply: Future[TracedReply] | None = None
    """The reply to its result; None: this has not come."""


@dataclass(frozen=True)
class _Answer:
    """An answer in the client's form."""

    value: Any
    form: AnswerForm

    def write(self, reply: TracedReply, start: ClientTurn | None) -> TracedReply:
        """The reply that it is; with the fields that may be a tool's where the start of the turn is given."""
        text, tool = json.dumps(self.value, ensure_ascii=False), self.form.tool
        message = assistant(text)
        if tool is not None:
            message = assistant(
                None, [FunctionCall(function=tool.name, args=self.value, id=make_call_id(ANSWER))]
            )
        untrusted = None
        if start is not None:
            believed = f"{start.user_text}\n{start.system_text}"
            untrusted = list_untrusted_fields(self.value, believed, self.form.schema)
        return replace(reply, message=message, untrusted=untrusted)


class RunningTurn:
    """One request of the user at work.

    `keep` stores the dialogue; it, `offer` (each hand-out) and `finish` are told before the client is. What the
    client can do is added to `start`, the request as the agent is given it.
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
    ) -> None:
        self._agent, self._store, self._offer, self._finish = agent, keep, offer, finish
        self._idle_s = idle_s
        self.dialogue = Dialogue()
        self.size = request.size
        """Bytes of its requests."""
        self.last_heard_s = time.monotonic()
        """When its client was last heard of."""
        self.handouts: list[Handout] = []
        self.reply = _begin_future()
        """The reply to the request that came last."""
        self.is_over = False
        self._cpu_clock: int | None = None
        """Clock of its thread; None where none works on it."""
        self._cpu_booked_s = 0.0
        self._lock, self._one_at_a_time = threading.RLock(), threading.Lock()
        self._inbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        """The result of the call that waits; None: it was ended."""
        self._ended: str | None = None
        self._request, self._start = request, start
        self._answer_tool = find_answer_tool(request)
        self._offered = self._list_offered(request)
        self._reported_usage = Usage()
        self._answer: _Answer | None = None
        self._is_given_up = False

    @property
    def trace_id(self) -> str:
        """Its id."""
        return self.dialogue.trace_id

    def resume(
        self, handout: Handout, position: RequestPosition, request: WireRequest
    ) -> Future[TracedReply]:
        """Give it the result of its call. One that comes again is not read: the first one counts."""
        with self._lock:
            self.last_heard_s = time.monotonic()
            if handout.reply is not None:
                return handout.reply
            if len(position.answers) != 1:
                raise self.refuse(400, "the call that waits takes one result")
            if self.is_over or self._ended is not None:
                raise self.refuse_over()
            if self._is_handed_over(position, request):
                why = (
                    "another agent of the client goes on: agents that hand over to each other are not served"
                )
                self.end(why)
                raise self.refuse(409, f"{why}; give each a conversation of its own, as a tool", "handoff")
            self.size += request.size
            self._offered = self._list_offered(request)
            self.reply = handout.reply = _begin_future()
            self._inbox.put(position.answers[0])
            return self.reply

    def end(self, why: str) -> None:
        """End it from outside; its thread stops where it next asks a tool or a model."""
        with self._lock:
            self._ended = self._ended or why
            self._inbox.put(None)

    def give_up(self) -> None:
        """Leave it to a thread that does not come to an end: its client is told, and what there is, stored."""
        with self._lock:
            if self.is_over:
                return
            self._is_given_up = True
        self.dialogue.error_kind, self.dialogue.error = "conversation_ended", self._ended
        try:
            self._store(self.dialogue)
        except Exception:  # noqa: BLE001 - the thread may be adding to it; the process ends in any case
            _LOG.exception("turn %s is not stored", self.trace_id)
        self._tell(self.refuse_over())

    def _tell(self, told: TracedReply | Exception) -> None:
        """Answer the request that came last, unless it has its answer."""
        with self._lock:
            if self.reply.done():
                return
            if isinstance(told, Exception):
                self.reply.set_exception(told)
            else:
                self.reply.set_result(told)

    def refuse(self, status: int, why: str, code: str | None = "out_of_place") -> RequestRefused:
        """A refusal that bears its trace."""
        return RequestRefused(status, why, code=code, trace=self.trace_id)

    def refuse_over(self) -> RequestRefused:
        """The refusal of a request that would go on from it, where it has ended without an answer."""
        kind = self.dialogue.error_kind
        why = self.dialogue.error if kind == "conversation_ended" else "its agent failed"
        return self.refuse(409, f"this conversation is over: {self._ended or why}; begin a new one", "over")

    def _list_offered(self, request: WireRequest) -> frozenset[str]:
        """The tools that a request lets the agent call."""
        answer = self._answer_tool
        if request.tool_choice == "none" or (answer is not None and request.forced == answer.name):
            return frozenset()
        return frozenset(tool.name for tool in request.tools if answer is None or tool.name != answer.name)

    def _is_handed_over(self, position: RequestPosition, request: WireRequest) -> bool:
        tools, first = ({tool.name for tool in one.tools} for one in (request, self._request))
        return position.system_text != self._start.system_text and tools != first

    def run(self) -> None:
        """Work on it, in a thread of its own: it is stored before anybody is told that it is over."""
        self._cpu_booked_s = time.thread_time()
        self._cpu_clock = time.pthread_getcpuclockid(threading.get_ident())
        failure: Exception | None = None
        try:
            self._find_answer(self._request, self._start)
        except (RequestRefused, ModelError) as error:
            failure = error
        except BaseException:  # noqa: BLE001 - a bug of a defense must not leave its client waiting
            _LOG.exception("turn %s failed", self.trace_id)
            failure = self.refuse(500, "the agent behind this server failed; see its log", None)
        with self._lock:
            if self._is_given_up:
                return
            self.is_over = True
        try:
            self._store(self.dialogue)
        except ConfigError as error:
            _LOG.error("turn %s is not stored: %s", self.trace_id, error)
            self.dialogue.error_kind, self.dialogue.error = "store", str(error)
            failure = self.refuse(500, "this conversation cannot be stored; see the server's log", None)
        self._finish(self)
        # Where its client has stayed away, it is told nothing.
        self._tell(failure or self._build_reply())
        with self._lock:
            self._cpu_clock = None
        # It is stored: what is kept to go on from is what was said.
        self.dialogue = replace(self.dialogue, tracer=Tracer())

    def _find_answer(self, request: WireRequest, start: ClientTurn) -> None:
        """Work on the request, until there is an answer in the form that the client wants."""
        tools = [tool for tool in request.tools if tool.name in self._offered]
        try:
            functions = build_client_functions(tools, self._run_tool, start.owner)
        except UnusableTool as slip:
            self.dialogue.requests.append(start.user_text)
            raise self._fail("bad_request", 400, str(slip)) from None
        answer = self._answer_tool
        schema = request.reply_schema if answer is None else answer.parameters
        if schema is not None:
            named = None if answer is None else answer.name
            if slip_of_schema := find_bad_schema([(named, schema)], start.owner):
                self.dialogue.requests.append(start.user_text)
                raise self._fail("bad_request", 400, slip_of_schema)
        turn = replace(start, functions=functions, reply_schema=schema, check=self._check_alive)
        self._run_agent(turn)
        if schema is None:
            return
        form = AnswerForm(schema, answer)
        value = form.read(self.dialogue.answer or "", start.owner)
        if value is None and not self._agent.one_turn_only:
            words = f"{ASK_AGAIN} {json.dumps(schema)}"
            before = self.dialogue.messages
            self._run_agent(replace(turn, user_text=words, before=before, goes_on=True, functions=()))
            value = form.read(self.dialogue.answer or "", start.owner)
        if value is None:
            named = "response_format" if answer is None else answer.name
            why = f"the agent's answer is not one JSON value of the schema of {named} and nothing else"
            raise self._fail("misfit", 422, why)
        self._answer = _Answer(value, form)

    def _run_agent(self, turn: ClientTurn) -> None:
        self._agent.run_turn(self.dialogue, turn)
        match self.dialogue.error_kind:
            case None:
                return
            case "conversation_ended":
                raise self.refuse_over()
            case "run_budget":
                raise self.refuse(402, "the budget of this server is used up", None)
            case "config":
                raise self.refuse(400, str(self.dialogue.error), None)
        raise self.refuse(500, "the agent behind this server failed; its record says why", None)

    def _fail(self, kind: str, status: int, why: str) -> RequestRefused:
        self.dialogue.error_kind, self.dialogue.error = kind, why
        return self.refuse(status, why, None)

    def _build_reply(self, call: FunctionCall | None = None) -> TracedReply:
        usage, before = self.dialogue.usage, self._reported_usage
        self._reported_usage = usage
        pairs = zip(vars(usage).values(), vars(before).values(), strict=True)
        spent = Usage(*(now - then for now, then in pairs))
        reply = TracedReply(
            *(assistant(self.dialogue.answer), spent), model_id=self.dialogue.model_id, trace=self.trace_id
        )
        if call is not None:
            return replace(reply, message=assistant(None, [call]))
        if self._answer is None:
            acting = (each for each in reversed(self.dialogue.tracer.all_calls) if each.role in ACTING_ROLES)
            last = next(acting, None)
            return replace(reply, ending=Ending.CUT) if last and last.ending == Ending.CUT else reply
        return self._answer.write(reply, self._start if self._request.marks_untrusted else None)

    def _run_tool(self, tool: str, given: dict[str, Any]) -> str:
        """Have the client run a tool, from the pipeline's thread; `ConversationEnded` if no result came."""
        args = json.loads(to_json_bytes(given))  # As the client will send them back.
        # Defenses may run tools from threads of their own; clients are asked one call after the other.
        with self._one_at_a_time:
            self._check_alive()
            if tool not in self._offered:
                raise ToolFailed(_NOT_OFFERED if self._offered else _NO_MORE_CALLS)
            handout = Handout(self, make_call_id(TOOL), (tool, args))
            self.handouts.append(handout)
            self._offer(handout)
            self._tell(self._build_reply(FunctionCall(function=tool, args=args, id=handout.call_id)))
            try:
                answer = self._inbox.get(timeout=self._idle_s)
            except queue.Empty:
                self.end(f"no result of a tool came for {self._idle_s:g} s")
            self._check_alive()
            assert answer is not None
        return answer

    def _check_alive(self) -> None:
        """Go no further in a turn that was ended."""
        if self._ended is not None:
            raise ConversationEnded(self._ended)

    def take_cpu(self) -> float:
        """CPU seconds of its thread since this was asked last, from whichever thread."""
        with self._lock:
            if self._cpu_clock is None:
                return 0.0
            now, before = time.clock_gettime(self._cpu_clock), self._cpu_booked_s
            self._cpu_booked_s = now
            return max(0.0, now - before)


def find_answer_tool(request: WireRequest) -> ToolSpec | None:
    """The client's answer schema, where it demands a call: the tool it names, or the one for its answer.

    Clients that demand any call bring their answer's schema as the last tool, or under a name for it.
    """
    if not request.forced:
        return None
    names = [request.forced] if request.forced != "required" else _ANSWER_TOOLS
    tool = next((tool for tool in request.tools if tool.name in names), None)
    if tool is None and request.forced == "required" and request.tools:
        tool = request.tools[-1]
    if tool is None:
        why = f"tool_choice {request.forced[:60]!r}: this request offers no such tool"
        raise RequestRefused(400, why, code="unsupported_tool_choice")
    return tool


def _begin_future() -> Future[TracedReply]:
    """A future that nobody can cancel: whoever resends a request gets the same reply."""
    future: Future[TracedReply] = Future()
    future.set_running_or_notify_cancel()
    return future
