"""`ClientConversation`: a dialogue with the defended agent, in a thread for as long as a turn lasts."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, ModelError, Usage, assistant
from agentsys.models.serving.wire_format import Problem, RequestRefused, TracedReply, WireRequest
from agentsys.serve_agent.call_handover import (
    CallHandover,
    ConversationPosition,
    OfferedCall,
    ToolAnswer,
    digest_messages,
)
from agentsys.serve_agent.client_tools import ToolFailed, UnusableTool, build_client_functions
from agentsys.serve_agent.defended_agent import ClientTurn, DefendedAgent, Dialogue

_LOG = logging.getLogger(__name__)

THREAD_NAME = "conversation"
"""Beginning of the names of conversations' threads."""
_ALREADY_CONTINUED = "the conversation has gone on since; continue it from its last reply"
_NO_MORE_CALLS = "The client takes no further tool calls; answer with what there is."
_NOT_OFFERED = "The client does not offer this tool any more."


@dataclass(frozen=True)
class ConversationState:
    """Where a conversation stands for its client."""

    replies: int = 0
    """Replies given so far."""
    call_ids: tuple[str, ...] = ()
    """Ids of the calls that wait for results; none where the agent has answered."""
    request_mark: str = ""
    """Mark of the request that led here: the same request is given the same reply."""
    history_mark: str = ""
    """Mark of that request and the reply to it: what the client's next one begins with."""
    reply_id: str = ""
    """Id of that reply, for clients that go on from it without resending what was said."""


class ClientConversation:
    """One conversation. Its requests are taken one at a time.

    Args:
        agent: The agent that answers.
        owner: Mark of the key it belongs to.
        keep: Stores it after every turn, before the client has the answer.
        idle_s: Seconds that it waits for a client's results.
        room: Room for turns under way, of all conversations together.
        rounds: Rounds of calls that the client takes in one turn; None: any number.
    """

    def __init__(
        self,
        agent: DefendedAgent,
        owner: str,
        keep: Callable[[Dialogue], None],
        idle_s: float,
        room: threading.BoundedSemaphore,
        rounds: int | None = None,
    ) -> None:
        self.agent, self.owner, self.store_dialogue = agent, owner, keep
        self.idle_s, self.turn_slots, self.rounds = idle_s, room, rounds
        self.dialogue = Dialogue()
        self.state = ConversationState()
        self.last_heard_s = time.monotonic()
        """When its client was last heard of."""
        self.call_ids: list[str] = []
        """Ids of all calls that it has handed out."""
        self.reply_ids: list[str] = []
        """Ids of all replies that it has given."""
        self._system_text = ""
        self._request_lock = threading.Lock()
        self._handover = CallHandover(idle_s)
        self._thread: threading.Thread | None = None
        self._reply: TracedReply | ModelError | RequestRefused | None = None
        self._failure: ModelError | None = None
        self._reported_usage = Usage()
        self._offered_tools: frozenset[str] = frozenset()
        self._rounds = 0
        self._early_answers: dict[str, list[ToolAnswer]] = {}

    @property
    def trace_id(self) -> str:
        """Its id."""
        return self.dialogue.trace_id

    @property
    def has_begun(self) -> bool:
        """Whether a turn of it was ever taken."""
        return self._thread is not None

    @property
    def is_running(self) -> bool:
        """Whether a turn is under way, waiting for the client's tools included."""
        return self._thread is not None and self._thread.is_alive()

    def take_request(self, place: ConversationPosition, request: ChatRequest) -> TracedReply:
        """Take a request: the first, results of tools, the user's next words, or one that was taken already.

        Raises:
            Refused: If it does not fit where the conversation stands, or the agent failed.
            ModelError: If a model gave no reply.
        """
        with self._request_lock:
            self.last_heard_s = time.monotonic()
            if self._reply is not None and place.request_mark == self.state.request_mark:
                pass  # Sent once more: the first results count, and these are not read.
            elif (here := self._complete_position(place)).call_ids:
                self._resume(here, request)
            else:
                self._begin_turn(here, request)
            assert self._reply is not None
            if isinstance(self._reply, Exception):
                raise self._reply
            return self._reply

    def end(self, why: str) -> None:
        """End what is under way; the thread stops where it next asks a tool or a model."""
        self._handover.end(why)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the thread of an ended conversation."""
        if self._thread is not None:
            self._thread.join(timeout)

    def _complete_position(self, place: ConversationPosition) -> ConversationPosition:
        """A place that is told by a reply's id, as the whole transcript would have told it."""
        if not place.previous_reply_id:
            return place
        if place.replies:
            raise self._refuse_position(
                "a request that goes on from a response brings no words of an assistant"
            )
        if place.previous_reply_id != self.state.reply_id:
            raise self._refuse_position(_ALREADY_CONTINUED)
        return replace(place, replies=self.state.replies, call_ids=self.state.call_ids)

    def _begin_turn(self, place: ConversationPosition, request: ChatRequest) -> None:
        self._check_alive()
        if self.state.call_ids or place.replies != self.state.replies:
            raise self._refuse_position(_ALREADY_CONTINUED)
        if not place.user_text or place.answers:
            raise self._refuse_position("a turn begins with words of the user, and nothing else")
        if self.state.replies == 0:
            self._system_text = place.system_text
        elif self.agent.one_turn_only:
            raise self._refuse_position(
                "this defense plans a request as a whole: begin a conversation for the next one"
            )
        turn = self._build_turn(place, request)
        if not self.turn_slots.acquire(blocking=False):
            why = "as many conversations are under way as this server takes at once"
            raise RequestRefused(Problem(429, why, retry_after_s=1.0))
        self._offered_tools, self._rounds = list_offered_tools(request), 0
        self._thread = threading.Thread(
            target=self._run_turn, args=(turn,), name=f"{THREAD_NAME}-{self.trace_id}", daemon=True
        )
        self._thread.start()
        self._wait_for_reply(place, request)

    def _build_turn(self, place: ConversationPosition, request: ChatRequest) -> ClientTurn:
        tools = () if request.tool_choice == "none" else request.tools
        self._handover = CallHandover(self.idle_s)
        try:
            functions = build_client_functions(tools, self._run_tool)
        except UnusableTool as slip:
            raise self._refuse(400, str(slip)) from None
        return ClientTurn(
            user_text=place.user_text,
            functions=functions,
            system_text=self._system_text,
            reply_schema=request.reply_schema,
            check=self._handover.check_alive,
            hand_out=None if isinstance(request, WireRequest) and request.one_call else self._hand_out,
        )

    def _resume(self, place: ConversationPosition, request: ChatRequest) -> None:
        self._check_alive()
        if place.user_text:
            raise self._refuse_position(
                "results of tools come alone; the user's next words follow the answer"
            )
        waiting = self.state.call_ids
        # Where the wire loses ids, the calls of the reply that was just given are known by their order.
        lost = place.has_lost_ids and place.history_mark == self.state.history_mark
        ids = dict(zip(place.call_ids if lost else waiting, waiting, strict=False))
        answers = {ids.get(one, ""): answer for one, answer in place.answers}
        if set(answers) != set(waiting) or len(place.answers) != len(waiting):
            raise self._refuse_position("each of the calls that wait takes one result, all in one request")
        self._offered_tools = list_offered_tools(request)
        if not self._handover.answer(answers):
            raise self._build_gone_refusal()
        self._wait_for_reply(place, request)

    def _wait_for_reply(self, place: ConversationPosition, request: ChatRequest) -> None:
        """Wait for the agent's next calls or its answer, and make the reply of it."""
        calls = self._handover.next_offer()
        ids = [call.id for call in calls]
        self.last_heard_s = time.monotonic()
        self.call_ids += ids
        self.reply_ids.append(secrets.token_hex(16))
        handed_out = [FunctionCall(function=call.tool, args=dict(call.args), id=call.id) for call in calls]
        message = assistant(None if handed_out else self.dialogue.answer, handed_out or None)
        self.state = ConversationState(
            self.state.replies + 1,
            tuple(ids),
            place.request_mark,
            digest_messages([*request.messages, message]),
            self.reply_ids[-1],
        )
        if not calls and self.dialogue.error_kind is not None:
            self._reply = self._failure or self._build_failure_refusal()
            return
        usage, before = self.dialogue.usage, self._reported_usage
        self._reported_usage = usage
        spent = Usage(*(now - then for now, then in zip(astuple(usage), astuple(before), strict=True)))
        self._reply = TracedReply(
            message, spent, model_id=self.dialogue.model_id, trace=self.trace_id, reply_id=self.state.reply_id
        )

    def _run_turn(self, turn: ClientTurn) -> None:
        """One turn, in its thread: stored before anybody is told that it is over."""
        try:
            self.agent.run_turn(self.dialogue, turn)
        except ModelError as error:
            self._failure = error
        finally:
            try:
                self.store_dialogue(self.dialogue)
            except ConfigError as error:
                _LOG.error("conversation %s is not stored: %s", self.trace_id, error)
                self.dialogue.error_kind, self.dialogue.error = "store", str(error)
            finally:
                self.turn_slots.release()
                self._handover.finish()

    def _run_tool(self, tool: str, args: dict[str, Any]) -> str:
        """Have the client run a tool. Called from the pipeline's thread.

        Raises:
            ToolFailed: If the tool failed at the client's.
            ConversationEnded: If no result came.
        """
        early = self._early_answers.get(_call_key(tool, args))
        answer = early.pop(0) if early else self._ask_client([(tool, args)])[0]
        if answer.error is not None:
            raise ToolFailed(answer.error)
        return answer.text

    def _hand_out(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
        self._early_answers = {}
        for (tool, args), answer in zip(calls, self._ask_client(calls), strict=True):
            self._early_answers.setdefault(_call_key(tool, args), []).append(answer)

    def _ask_client(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[ToolAnswer]:
        self._rounds += 1
        if not self._offered_tools or (self.rounds is not None and self._rounds > self.rounds):
            return [ToolAnswer("", _NO_MORE_CALLS) for _ in calls]
        wanted = [OfferedCall(f"call_{secrets.token_hex(16)}", tool, args) for tool, args in calls]
        possible = [call for call in wanted if call.tool in self._offered_tools]
        answers: Mapping[str, ToolAnswer] = self._handover.ask(possible) if possible else {}
        return [answers.get(call.id, ToolAnswer("", _NOT_OFFERED)) for call in wanted]

    def _check_alive(self) -> None:
        if self.dialogue.error_kind is not None:
            raise self._build_gone_refusal()

    def _build_gone_refusal(self) -> RequestRefused:
        why = self.dialogue.error or "it waited too long"
        if self.dialogue.error_kind not in (None, "conversation_ended"):
            why = "its agent failed"
        return self._refuse(410, f"this conversation is over: {why}; begin a new one")

    def _build_failure_refusal(self) -> RequestRefused:
        match self.dialogue.error_kind:
            case "conversation_ended":
                return self._build_gone_refusal()
            case "run_budget":
                return self._refuse(402, "the budget of this server is used up")
        return self._refuse(500, "the agent behind this server failed; its record says why")

    def _refuse_position(self, why: str) -> RequestRefused:
        return self._refuse(400, why, "out_of_place")

    def _refuse(self, status: int, why: str, code: str | None = None) -> RequestRefused:
        return RequestRefused(Problem(status, why, code=code), self.trace_id)


def list_offered_tools(request: ChatRequest) -> frozenset[str]:
    """The tools that a request lets the agent call."""
    return frozenset(() if request.tool_choice == "none" else (tool.name for tool in request.tools))


def _call_key(tool: str, args: Mapping[str, Any]) -> str:
    return json.dumps([tool, args], sort_keys=True, default=str)
