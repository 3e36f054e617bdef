"""`ConversationRouter`: finds the turn that a request goes on from, by ids, under its key and within its quota."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from agentdojo.types import ChatMessage

from agentsys.models.chat import ModelError
from agentsys.models.serving.json_check import take_cpu
from agentsys.models.serving.model_application import USED_UP
from agentsys.models.serving.wire_format import RequestRefused, TracedReply, WireRequest
from agentsys.serve_agent.defended_agent import ClientTurn, DefendedAgent, Dialogue
from agentsys.serve_agent.request_position import RequestPosition, read_position
from agentsys.serve_agent.running_turn import Handout, RunningTurn

THREAD_NAME = "turn"
"""Beginning of the names of turns' threads, which are kept for later turns."""
_ENDED = "the server is stopping"
_MINUTE_S = 60.0
_STOP_S = 5.0
"""Seconds that turns have to come to their end when the server stops."""


@dataclass(frozen=True)
class ConversationLimits:
    """Bounds on what the clients of one key may leave behind."""

    at_once: int = 256
    """Turns under way; each has a thread."""
    all_at_once: int = 2048
    """The same of all keys together."""
    max_resting: int = 4096
    """Turns with calls that can be gone on from; the oldest are forgotten first."""
    max_bytes: int = 64 * 2**20
    """Bytes of the requests of all these."""
    cpu_s: float = 30.0
    """CPU seconds a minute, where other keys ask too."""
    idle_s: float = 600.0
    """Seconds after which a client that does not come back is not waited for any more."""


@dataclass
class KeyAccount:
    """What the clients of one key have under way, and what is kept for them."""

    running: dict[str, RunningTurn] = field(default_factory=dict)
    """By trace."""
    resting: OrderedDict[str, RunningTurn] = field(default_factory=OrderedDict)
    """By trace, those that were gone on from last at the end."""
    handouts: dict[str, Handout] = field(default_factory=dict)
    """By the id of a call, and the last of each turn by its trace."""
    size: int = 0
    """Bytes of the requests of all turns."""
    cpu_s: float = 0.0
    """CPU seconds used, less what a minute gives back."""
    seen_s: float = field(default_factory=time.monotonic)

    def forget(self, turn: RunningTurn) -> None:
        """Forget a turn that is at rest, or never began."""
        self.running.pop(turn.trace_id, None)
        self.resting.pop(turn.trace_id, None)
        self.handouts.pop(turn.trace_id, None)
        self.size -= turn.size
        for handout in turn.handouts:
            self.handouts.pop(handout.call_id, None)

    def forget_old(self, limits: ConversationLimits) -> None:
        """Forget what is too old or too much."""
        now = time.monotonic()
        while self.resting:
            oldest = next(iter(self.resting.values()))
            too_much = len(self.resting) > limits.max_resting or self.size > limits.max_bytes
            if not too_much and now - oldest.last_heard_s <= limits.idle_s:
                return
            self.forget(oldest)


class ConversationRouter:
    """Begins turns, and finds those that requests go on from: the endpoint of a server. Usable from many threads.

    `keep` stores a turn's dialogue when it is over; `note_asked` is told the model that each request names.
    """

    def __init__(
        self,
        agent: DefendedAgent,
        name: str,
        keep: Callable[[Dialogue], None],
        limits: ConversationLimits | None = None,
        note_asked: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.agent, self.name, self.keep = agent, name, keep
        self.limits = limits or ConversationLimits()
        self._note_asked = note_asked
        self._lock = threading.Lock()
        self._accounts: OrderedDict[str, KeyAccount] = OrderedDict()
        """By the mark of the key, those that were seen last at the end."""
        self.running_count = 0
        """Turns under way, waiting for a client's tools included."""
        self._pool = ThreadPoolExecutor(self.limits.all_at_once, THREAD_NAME)
        self._closed = False

    def book(self, owner: str, cpu_s: float) -> bool:
        """Note CPU seconds that a key's requests took, here and in other processes; whether it has any left."""
        with self._lock:
            account = self._find_account(owner)
            account.cpu_s += cpu_s + take_cpu(owner)
            return account.cpu_s <= self.limits.cpu_s or not self._is_shared(account)

    async def answer(self, request: WireRequest) -> TracedReply:
        """Answer a request; no thread waits for what a client has to do."""
        self._note_asked(request.model)
        if (unfinished := self._finish_turn(request)) is not None:
            with contextlib.suppress(RequestRefused, ModelError):  # It is said again of the request itself.
                await asyncio.wrap_future(unfinished)
        turn, reply = self.take(request)
        try:
            return await asyncio.wrap_future(reply)
        except asyncio.CancelledError:
            if not turn.handouts:  # Nobody has the id that it could be gone on by.
                turn.end("its client left before the first reply")
            raise

    def take(self, request: WireRequest) -> tuple[RunningTurn, Future[TracedReply]]:
        """Begin a turn, or give one the result that it waits for; the turn, and its reply when there is one.

        `RequestRefused` if the request goes on from no known turn, does not fit it, or there is no room.
        """
        position = read_position(request)
        with self._lock:
            if self._closed:
                raise RequestRefused(503, _ENDED)
            account = self._find_account(request.owner)
            handout = self._find_handout(account, position, request.trace)
            if handout is not None and not position.user_text:
                before = handout.turn.size
                reply = handout.turn.resume(handout, position, request)
                account.size += handout.turn.size - before
                return handout.turn, reply
            turn = self._build_turn(account, position, request, handout)
            # In an empty context: nothing of a turn that had its thread before (loggers, tracers) is left.
            self._pool.submit(contextvars.Context().run, turn.run)
            return turn, turn.reply

    def _finish_turn(self, request: WireRequest) -> Future[TracedReply] | None:
        """Give the turn that waits the result that comes beside the user's next words; None if there is none.

        Some clients show a tool's result to the user, and ask the agent again with the next words alone. The turn
        comes to its end without further calls, and the words begin another behind it.
        """
        position = read_position(request)
        if not (position.answers and position.user_text):
            return None
        with self._lock:
            account = self._find_account(request.owner)
            handout = self._find_handout(account, position, request.trace)
            if handout is None or handout.turn.is_over or handout is not handout.turn.handouts[-1]:
                return None
            before = handout.turn.size
            reply = handout.turn.resume(handout, position, replace(request, tool_choice="none"))
            account.size += handout.turn.size - before
            return reply

    def stop(self) -> None:
        """End every turn; those that do not come to their end in time are told so, and left."""
        with self._lock:
            self._closed = True
            running = [turn for account in self._accounts.values() for turn in account.running.values()]
        for turn in running:
            turn.end(_ENDED)
        end = time.monotonic() + _STOP_S
        while self.running_count and time.monotonic() < end:
            time.sleep(0.01)
        for turn in running:
            turn.give_up()
        self._pool.shutdown(wait=not self.running_count)

    def _find_account(self, owner: str) -> KeyAccount:
        account = self._accounts.setdefault(owner, KeyAccount())
        self._accounts.move_to_end(owner)
        now = time.monotonic()
        returned_s = (now - account.seen_s) * self.limits.cpu_s / _MINUTE_S
        account.cpu_s, account.seen_s = max(0.0, account.cpu_s - returned_s), now
        account.forget_old(self.limits)
        # A key that is not seen any more leaves nothing behind; one look a request keeps up with new keys.
        oldest, other = next(iter(self._accounts.items()))
        if other is not account:
            other.forget_old(self.limits)
            if not other.running and not other.resting and now - other.seen_s > _MINUTE_S:
                del self._accounts[oldest]
        return account

    def _find_handout(self, account: KeyAccount, position: RequestPosition, trace: str) -> Handout | None:
        """The call that a request goes on from; None: it has words alone."""
        if not position.call_id:
            return None
        found = account.handouts.get(position.call_id) or account.handouts.get(trace)
        if found is None:
            why = (
                "the calls in this request are not known here: they are another key's, or this server's no"
                " more. Begin a new conversation; a client that changes ids sends x-agentsys-trace back"
            )
            raise RequestRefused(409, why, code="unknown_conversation")
        if position.call is not None and position.call != found.call:
            raise found.turn.refuse(409, "a call in this request is not the one that was handed out")
        return found

    def _build_turn(
        self, account: KeyAccount, position: RequestPosition, request: WireRequest, behind: Handout | None
    ) -> RunningTurn:
        if not position.user_text:
            raise RequestRefused(400, "a turn begins with words of the user")
        before = position.words
        if behind is not None:
            before = self._go_on(behind, position)
            account.resting.move_to_end(behind.turn.trace_id)
        if before and self.agent.one_turn_only:
            why = "this defense plans a request as a whole: begin a conversation for the next one"
            raise RequestRefused(400, why, code="out_of_place")
        self._check_quota(account, request)
        turn = RunningTurn(
            self.agent,
            self.keep,
            request,
            ClientTurn(
                position.user_text,
                system_text=position.system_text,
                before=before,
                goes_on=behind is not None,
                owner=request.owner,
            ),
            partial(self._add_handout, account),
            partial(self._put_turn_to_rest, account),
            self.limits.idle_s,
        )
        account.running[turn.trace_id] = turn
        account.size += turn.size
        self.running_count += 1
        return turn

    def _go_on(self, handout: Handout, position: RequestPosition) -> Sequence[ChatMessage]:
        """What was said before a turn behind one that had calls: that one's own messages."""
        turn = handout.turn
        if turn.is_over and turn.dialogue.error_kind is not None:
            raise turn.refuse_over()
        if not turn.is_over:
            raise turn.refuse(400, "results of tools come alone; the user's next words follow the answer")
        if handout is not turn.handouts[-1]:
            raise turn.refuse(409, "calls behind these are left out of this request; resend all of them")
        turn.last_heard_s = time.monotonic()
        # The answer of that turn is in its messages; what the client has made of it is not read.
        said = position.words
        said = said[1:] if said and said[0]["role"] == "assistant" else said
        return [*turn.dialogue.messages, *said]

    def _check_quota(self, account: KeyAccount, request: WireRequest) -> None:
        account.cpu_s += sum(turn.take_cpu() for turn in account.running.values())
        limits, why = self.limits, ""
        if len(account.running) >= limits.at_once:
            why = "as many conversations of this key are under way as this server takes at once"
        elif self.running_count >= limits.all_at_once:
            why = "as many conversations are under way as this server takes at once"
        elif account.size + request.size > limits.max_bytes:
            why = "the conversations of this key take all the room it has here"
        elif account.cpu_s > limits.cpu_s and self._is_shared(account):
            why = USED_UP
        if why:
            raise RequestRefused(429, why, retry_after_s=1.0)

    def _is_shared(self, account: KeyAccount) -> bool:
        others = (other for other in reversed(self._accounts.values()) if other is not account)
        return any(account.seen_s - other.seen_s < _MINUTE_S for other in others)

    def _add_handout(self, account: KeyAccount, handout: Handout) -> None:
        with self._lock:
            account.handouts[handout.call_id] = account.handouts[handout.turn.trace_id] = handout
            account.cpu_s += handout.turn.take_cpu()

    def _put_turn_to_rest(self, account: KeyAccount, turn: RunningTurn) -> None:
        with self._lock:
            self.running_count -= 1
            account.cpu_s += turn.take_cpu()
            del account.running[turn.trace_id]
            if turn.handouts:
                account.resting[turn.trace_id] = turn
            else:  # Of words alone: the client has all that there is of it.
                account.forget(turn)
