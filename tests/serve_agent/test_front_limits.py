"""Many clients at once, and many that leave: no thread stays, nothing grows with what was left behind."""

from __future__ import annotations

import os
import threading

from front_clients import Client, conversations_threads, desk_of, wait_until
from scripted_for_serving import Scripted, calls, says

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys.serve_agent.conversation_router import ConversationLimits
from agentsys.serve_agent.defended_agent import Dialogue
from baselines.none import NoDefense

AT_ONCE = int(os.environ.get("AGENTSYS_FRONT_AT_ONCE", "20"))
"""Conversations side by side; 200 were run by hand."""
LEFT = int(os.environ.get("AGENTSYS_FRONT_LEFT", "60"))
"""Conversations opened and left; 1,000 were run by hand."""


class Echo:
    """Reads the page that it is asked for, and answers with it."""

    name = "echo"

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.messages[-1]["role"] == "user":
            return calls(("read", {"page": text_of(request.messages[-1])}))
        return says(text_of(request.messages[-1]))


def test_conversations_at_once_are_all_under_way_and_all_answered() -> None:
    kept: list[Dialogue] = []
    desk = desk_of(Echo(), NoDefense(), limits=ConversationLimits(at_once=AT_ONCE), kept=kept)
    together = threading.Barrier(AT_ONCE)
    under_way: list[int] = []
    answers: dict[str, str] = {}

    def page(page: str) -> str:
        together.wait(timeout=300)  # Every conversation has handed its call out by now, and none has gone on.
        under_way.append(desk.running_count)
        together.wait(timeout=300)
        return f"page {page}"

    def one(name: str) -> None:
        answers[name] = Client(desk, {"read": page}).ask(name)

    threads = [threading.Thread(target=one, args=(str(number),)) for number in range(AT_ONCE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {str(number): f"page {number}" for number in range(AT_ONCE)}
    assert set(under_way) == {AT_ONCE}
    assert len(kept) == AT_ONCE
    wait_until(lambda: desk.running_count == 0, "a turn goes on")


def test_conversations_that_are_left_end_by_themselves_and_are_forgotten() -> None:
    kept: list[Dialogue] = []
    limits = ConversationLimits(at_once=LEFT, max_resting=10, idle_s=1.0)
    desk = desk_of(Scripted(calls(("read", {"page": "1"}))), NoDefense(), limits=limits, kept=kept)
    for number in range(LEFT):
        Client(desk, {}).say(f"Go {number}.")
    wait_until(lambda: desk.running_count == 0, "a turn goes on")
    assert {one.error_kind for one in kept} == {"conversation_ended"}
    assert len(kept) == LEFT
    Client(desk, {}).say("One more.")
    assert desk.resting_count <= limits.max_resting + 1
    desk.stop()
    assert not conversations_threads()
