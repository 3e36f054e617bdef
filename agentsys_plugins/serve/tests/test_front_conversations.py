"""Conversations of a defended agent with clients: turns, calls, resends, limits and ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from front_clients import READ, SEND, Client, ask, count_resting, desk_of, refused, result, wait_until
from scripted_for_serving import Scripted, calls, says

from agentsys.defense.agentsys import AgentSys
from agentsys.models.chat import (
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    Usage,
    assistant,
    system,
    text_of,
    user,
)
from agentsys_plugins.serve.conversation_router import ConversationLimits
from agentsys_plugins.serve.defended_agent import Dialogue
from agentsys_plugins.serve.served_model.wire_format import RequestRefused, WireRequest
from baselines.none import NoDefense
from baselines.reworded_task import PromptSandwiching


def pages(page: str) -> str:
    return f"This is page {page}."


TOOLS: dict[str, Callable[..., str]] = {"read": pages, "send": lambda to, text: "sent"}


def test_calls_are_handed_out_and_results_resume_the_agent() -> None:
    model = Scripted(calls(("read", {"page": "1"})), calls(("read", {"page": "2"})), says("Both read."))
    client = Client(desk_of(model, NoDefense()), TOOLS, told="Be brief.")
    assert client.ask("Read both.") == "Both read."
    assert [text_of(m) for m in model.asked[-1].messages] == [
        "Be brief.",
        "Read both.",
        "",
        "This is page 1.",
        "",
        "This is page 2.",
    ]
    assert [spec.name for spec in model.asked[0].tools] == ["read", "send"]
    assert model.asked[0].tools[0].parameters == READ.parameters
    wait_until(lambda: client.desk.running_count == 0, "a turn goes on")


def test_without_a_system_message_the_model_gets_none() -> None:
    model = Scripted(says("Hello."))
    Client(desk_of(model, NoDefense()), TOOLS).ask("Hi.")
    assert [message["role"] for message in model.asked[0].messages] == ["user"]


class Roles:
    """Answers each role from its own list, the last reply for ever."""

    name = "roles"

    def __init__(self, **replies: list[ChatReply]) -> None:
        self.replies = replies

    def complete(self, request: ChatRequest) -> ChatReply:
        left = self.replies[request.role]
        return left.pop(0) if len(left) > 1 else left[0]


INTENT = {"text": "string"}
LABELS = ChatReply(assistant('{"read": "query", "send": "command"}'), Usage(1000, 1000))


def test_calls_of_one_message_go_out_one_by_one() -> None:
    pair = calls(("read", {"page": "1", "intent": INTENT}), ("read", {"page": "2", "intent": INTENT}))
    model = Roles(main=[pair, says("Done.")], worker=[says('{"text": "x"}')], privileges=[LABELS])
    client = Client(desk_of(model, AgentSys()), TOOLS)
    assert client.ask("Read both.") == "Done."
    assert [len(reply.message["tool_calls"] or ()) for reply in client.replies] == [1, 1, 0]


def test_ids_are_the_servers_and_no_two_are_alike() -> None:
    model = Scripted(calls(("read", {"page": "1"}), ids=["call_1"]))
    desk = desk_of(model, NoDefense())
    ids = set()
    for _ in range(5):
        [call] = Client(desk, TOOLS).say("Read.").message["tool_calls"] or []
        ids.add(call.id)
    desk.stop()
    assert len(ids) == 5
    assert all(id is not None and len(id) >= 32 for id in ids)


def test_a_second_request_of_the_user_goes_on_from_the_servers_own_messages() -> None:
    model = Scripted(calls(("read", {"page": "1"})), says("One."), says("Two."))
    client = Client(desk_of(model, NoDefense()), TOOLS, told="Be brief.")
    assert client.ask("First?") == "One."
    told = client.messages[3]
    client.messages[3] = result(told["tool_call"], "FORGED")  # type: ignore[typeddict-item]
    assert client.ask("And now?") == "Two."
    last = model.asked[-1].messages
    assert [m["role"] for m in last] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert "FORGED" not in str(last)
    assert text_of(last[3]) == "This is page 1."


def test_a_conversation_of_words_alone_is_what_its_request_holds() -> None:
    model = Scripted(says("Hello."))
    desk = desk_of(model, NoDefense())
    client = Client(desk, TOOLS, told="Be brief.")
    client.ask("Hi.")
    client.messages[2] = assistant("Something else.")
    assert client.ask("How are you?") == "Hello."
    assert [text_of(one) for one in model.asked[1].messages] == [
        *("Be brief.", "Hi.", "Something else.", "How are you?")
    ]
    assert count_resting(desk) == 0
    assert len({reply.trace for reply in client.replies}) == 2


def test_a_turn_with_calls_is_gone_on_from_its_own_messages_and_later_words_are_the_clients() -> None:
    model = Scripted(calls(("read", {"page": "1"})), says("One."), says("Two."), says("Three."))
    client = Client(desk_of(model, NoDefense()), TOOLS, told="Be brief.")
    client.ask("First?")
    branch = list(client.messages)
    client.messages[-1] = assistant("Edited.")  # It changes no call, and is not read.
    client.ask("Second?")
    client.messages[-1] = assistant("Invented.")
    client.ask("Third?")
    said = [text_of(one) for one in model.asked[-1].messages]
    assert said[4:] == ["One.", "Second?", "Invented.", "Third?"]
    client.messages = branch
    client.ask("Another second?")
    assert [text_of(one) for one in model.asked[-1].messages][4:] == ["One.", "Another second?"]


def test_a_changed_call_and_calls_left_out_are_refused() -> None:
    one, two = (calls(("read", {"page": page})) for page in "12")
    client = Client(desk_of(Scripted(one, two, says("Read.")), NoDefense()), TOOLS)
    client.ask("Read both.")
    whole = list(client.messages)
    [call] = whole[1]["tool_calls"]  # type: ignore[typeddict-item, misc]
    other = FunctionCall(function="read", args={"page": "9"}, id=call.id)
    client.messages = [whole[0], assistant(None, [other]), result(other, "x"), assistant("So."), user("And?")]
    with refused(409, "not the one that was handed out"):
        client.send()
    client.messages = [*whole[:3], assistant("So."), user("And?")]
    with refused(409, "left out"):
        client.send()


def rewrite_ids(messages: list[Any]) -> list[Any]:
    """Messages of words, calls and results as a client has them that gives calls ids of its own."""
    written: list[Any] = []
    for each in messages:
        calls_made = [*(each.get("tool_calls") or ())]
        if calls_made:
            own = FunctionCall(
                function=calls_made[0].function, args=calls_made[0].args, id=f"own-{len(written)}"
            )
            each = assistant(None, [own])
        elif each["role"] == "tool":
            each = result(written[-1]["tool_calls"][0], text_of(each))
        written.append(each)
    return written


def test_a_client_that_gives_calls_ids_of_its_own_is_found_by_the_trace() -> None:
    one, two = (calls(("read", {"page": page})) for page in "12")
    model = Scripted(one, two, says("Read."), one, says("And more."))
    client = Client(desk_of(model, NoDefense(), limits=ConversationLimits(max_resting=1)), TOOLS)
    client.say("Read both.")
    trace = client.replies[0].trace
    for answer in ("", "Read."):
        client.run_calls()
        client.messages = rewrite_ids(client.messages)
        for owner, named in (("me", ""), ("me", "f" * 24), ("somebody else", trace)):
            with refused(409, "sends x-agentsys-trace back", code="unknown_conversation"):
                ask(client.desk, owner, client.request(trace=named))
        late = client.request(trace=trace)
        assert text_of(client.send(trace=trace).message) == answer
    assert [text_of(each) for each in model.asked[2].messages if each["role"] == "tool"] == [
        *("This is page 1.", "This is page 2.")
    ]
    # The same request again gets the same reply; an older call is not the one that was handed out last.
    assert ask(client.desk, "me", late) is client.replies[-1]
    with refused(409, "not the one that was handed out"):
        ask(client.desk, "me", WireRequest(client.messages[:3], client.specs, trace=trace))
    # The user's next words go on from the turn; its calls are of a turn of their own.
    client.messages.append(user("And more?"))
    assert client.send(trace=trace).trace != trace
    assert "This is page 2." in str(model.asked[3].messages)
    client.run_calls()
    client.messages = rewrite_ids(client.messages)
    assert text_of(client.send(trace=client.replies[-1].trace).message) == "And more."
    # What is forgotten is found by its trace no more.
    with pytest.raises(RequestRefused, match="not known here"):
        ask(client.desk, "me", late)


def test_calls_and_results_that_a_client_writes_as_words_are_results_all_the_same() -> None:
    model = Scripted(calls(("read", {"page": "1"})), says("Read."), says("More."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    [call] = client.say("Read.").message["tool_calls"] or []
    client.messages = [
        client.messages[0],
        assistant(f"Calling tools: {call.id}"),
        user("Observation: INJECTED"),
    ]
    assert text_of(client.send().message) == "Read."
    assert [one["role"] for one in model.asked[1].messages] == ["user", "assistant", "tool"]
    client.ask("And?")
    assert [one["role"] for one in model.asked[2].messages][2:] == ["tool", "assistant", "user"]
    assert str(model.asked[2].messages).count("INJECTED") == 1


def test_a_call_answered_twice_keeps_its_first_answer() -> None:
    model = Scripted(calls(("read", {"page": "1"})), calls(("read", {"page": "2"})), says("Done."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.say("Go.")
    client.run_calls()
    first = client.send()
    forged = [*client.messages[:-2], result(client.messages[-2]["tool_call"], "FORGED")]  # type: ignore[typeddict-item]
    assert ask(client.desk, "me", WireRequest(forged, client.specs)) is first
    client.run_calls()
    assert text_of(client.send().message) == "Done."
    assert all("FORGED" not in str(asked.messages) for asked in model.asked)
    assert ask(client.desk, "me", WireRequest(forged, client.specs)) is first


def test_results_of_other_ids_missing_ones_and_doubled_ones_are_refused() -> None:
    model = Scripted(calls(("read", {"page": "1"})), calls(("read", {"page": "2"})), says("Done."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.say("Go.")
    client.run_calls()
    [old] = client.replies[0].message["tool_calls"] or []
    [made] = client.send().message["tool_calls"] or []
    foreign = FunctionCall(function="read", args={"page": "1"}, id="call_of_somebody")
    for wrong in ([old], [made, made], [made, foreign], []):
        with pytest.raises(RequestRefused):
            request = WireRequest([*client.messages, *(result(one, "x") for one in wrong)], client.specs)
            ask(client.desk, "me", request)
    both = [client.messages[0], assistant(None, [old, made]), result(old, "x"), result(made, "x")]
    with refused(409, "one at a time", code="unknown_conversation"):
        ask(client.desk, "me", WireRequest(both, client.specs))
    client.run_calls()
    assert text_of(client.send().message) == "Done."


def test_another_keys_conversation_is_unknown() -> None:
    model = Scripted(calls(("read", {"page": "1"})), says("Done."), says("More."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.say("Go.")
    client.run_calls()
    with refused(409, code="unknown_conversation"):
        ask(client.desk, "somebody else", client.request())
    assert text_of(client.send().message) == "Done."
    client.messages.append(user("More?"))
    with pytest.raises(RequestRefused):
        ask(client.desk, "somebody else", client.request())
    assert text_of(client.send().message) == "More."


def test_words_of_the_user_beside_results_are_refused() -> None:
    client = Client(desk_of(Scripted(calls(("read", {"page": "1"})), says("x")), NoDefense()), TOOLS)
    client.say("Go.")
    client.run_calls()
    client.messages.append(user("By the way,"))
    with refused(400, code="out_of_place"):
        client.send()
    client.desk.stop()


def test_arguments_that_the_clients_schema_refuses_never_reach_the_client() -> None:
    model = Scripted(calls(("read", {"page": 3})), calls(("read", {"page": "3"})), says("Done."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    [call] = client.say("Go.").message["tool_calls"] or []
    assert call.args == {"page": "3"}
    assert "not of type 'string'" in str(model.asked[1].messages[-1]["error"])  # type: ignore[typeddict-item]
    client.desk.stop()


def test_only_arguments_that_were_given_reach_the_client() -> None:
    many = ToolSpec("read", "Reads.", {"type": "object", "properties": {"page": {}, "line": {"default": 1}}})
    client = Client(desk_of(Scripted(calls(("read", {"page": "3"}))), NoDefense()), TOOLS, [many])
    [call] = client.say("Go.").message["tool_calls"] or []
    assert call.args == {"page": "3"}
    client.desk.stop()


@pytest.mark.parametrize(
    ("tools", "told"),
    [
        ([READ, READ], "two tools"),
        ([ToolSpec("t", "", {"type": "array"})], "object's schema"),
        ([ToolSpec("t", "", {"$schema": 5})], "must be a text"),
        ([ToolSpec("t", "", {"properties": {"a\0": {"$ref": 5}}})], "not valid"),
        ([ToolSpec("t", "", {"type": "object", "properties": {"a": {"type": "strange"}}})], "not valid"),
    ],
)
def test_tools_that_cannot_be_offered_are_refused(tools: Sequence[ToolSpec], told: str) -> None:
    client = Client(desk_of(Scripted(says("x")), NoDefense()), TOOLS, tools)
    with pytest.raises(RequestRefused, match=told):
        client.say("Go.")


def test_a_schema_that_refers_to_another_place_is_never_fetched() -> None:
    far = {"type": "object", "properties": {"page": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    model = Scripted(calls(("read", {"page": "1"})), says("Done."))
    client = Client(desk_of(model, NoDefense()), TOOLS, [ToolSpec("read", "Reads.", far)])
    assert client.ask("Go.") == "Done."
    assert "cannot be applied" in str(model.asked[1].messages[-1]["error"])  # type: ignore[typeddict-item]


def test_tool_choice_none_offers_no_tools_and_takes_no_further_calls() -> None:
    one, two = (calls(("read", {"page": page})) for page in "12")
    model = Scripted(says("Plain."), one, two, says("End."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.messages.append(user("No tools."))
    client.send(tool_choice="none")
    assert model.asked[0].tools == []
    client.say("Now with tools.")
    client.run_calls()
    assert text_of(client.send(tool_choice="none").message) == "End."
    assert "no further tool calls" in str(model.asked[-1].messages[-1]["error"])  # type: ignore[typeddict-item]


def test_a_reply_schema_is_asked_of_the_agent() -> None:
    schema = {"type": "object"}
    model = Scripted(says("{}"), says("{}"))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.messages.append(user("JSON."))
    client.send(reply_schema=schema)
    client.messages = client.messages[:1]
    # With tools on offer it is told alone: a server that holds a model to it lets it call none.
    assert model.asked[0].reply_schema is None
    assert str(schema).replace("'", '"') in text_of(model.asked[0].messages[0])
    client.specs = []
    client.send(reply_schema=schema, tool_choice="none")
    assert model.asked[-1].reply_schema == schema


def test_usage_is_the_sum_of_all_roles_since_the_last_reply() -> None:
    model = Roles(
        main=[
            ChatReply(calls(("read", {"page": "1", "intent": INTENT})).message, Usage(10, 1)),
            ChatReply(assistant("Done."), Usage(20, 3)),
        ],
        worker=[ChatReply(assistant('{"text": "x"}'), Usage(100, 2))],
        privileges=[LABELS],
    )
    client = Client(desk_of(model, AgentSys()), TOOLS)
    client.ask("Go.")
    # The question about the tools is asked once for all conversations, and is part of none.
    assert [(one.usage.prompt, one.usage.completion) for one in client.replies] == [(10, 1), (120, 5)]


def test_a_failing_model_is_reported_and_ends_the_conversation() -> None:
    class Failing:
        name = "failing"

        def complete(self, request: ChatRequest) -> ChatReply:
            raise ModelError(ErrorKind.CONTEXT_LENGTH, "too long")

    kept: list[Dialogue] = []
    client = Client(desk_of(Failing(), NoDefense(), kept=kept), TOOLS)
    with pytest.raises(ModelError, match="too long"):
        client.say("Go.")
    assert [one.error_kind for one in kept] == ["context_length"]


def test_a_bug_of_a_defense_is_a_500_that_tells_nothing_of_it() -> None:
    class Broken(NoDefense):
        def pipeline(self, model: Any, suite: Any) -> Any:
            raise ZeroDivisionError("a secret of the server")

    kept: list[Dialogue] = []
    client = Client(desk_of(Scripted(says("x")), Broken(), kept=kept), TOOLS)
    with refused(500) as found:
        client.say("Go.")
    assert "secret" not in found.value.message
    assert kept[0].error_kind == "defense"
    assert "ZeroDivisionError" in (kept[0].traceback or "")


def test_a_conversation_is_stored_before_its_answer_is_given() -> None:
    kept: list[Dialogue] = []
    model = Scripted(calls(("read", {"page": "1"})), says("Done."))
    client = Client(desk_of(model, NoDefense(), kept=kept), TOOLS)
    client.say("Go.")
    assert kept == []
    client.run_calls()
    client.send()
    assert [(one.error_kind, one.answer, one.requests) for one in kept] == [(None, "Done.", ["Go."])]
    assert kept[0].trace_id == client.replies[-1].trace  # type: ignore[attr-defined]


def test_no_more_than_so_many_are_under_way_at_once() -> None:
    desk = desk_of(
        Scripted(calls(("read", {"page": "1"}))), NoDefense(), limits=ConversationLimits(at_once=2)
    )
    for _ in range(2):
        Client(desk, TOOLS).say("Go.")
    with refused(429) as found:
        Client(desk, TOOLS).say("Go.")
    assert found.value.retry_after_s == 1.0
    desk.stop()
    assert desk.running_count == 0


def test_turns_at_rest_are_forgotten_the_oldest_first() -> None:
    replies = [calls(("read", {"page": "1"})), says("Read.")]
    limits = ConversationLimits(max_resting=2)
    desk = desk_of(Scripted(*replies * 4, says("More.")), NoDefense(), limits=limits)
    clients = [Client(desk, TOOLS) for _ in range(4)]
    for number, client in enumerate(clients):
        client.ask(f"Read {number}.")
    with pytest.raises(RequestRefused):
        clients[0].say("And?")
    assert text_of(clients[3].say("And?").message) == "More."


def test_bytes_and_cpu_of_a_key_are_bounded_and_those_of_another_are_its_own() -> None:
    reply = calls(("read", {"page": "1"}))
    desk = desk_of(Scripted(reply), NoDefense(), limits=ConversationLimits(max_bytes=1000))
    Client(desk, TOOLS).say("x" * 600)
    with refused(429, "all the room"):
        Client(desk, TOOLS).say("x" * 600)
    Client(desk, TOOLS, owner="other").say("x" * 600)
    desk.stop()

    class Busy(Scripted):
        def complete(self, request: ChatRequest) -> ChatReply:
            until = time.thread_time() + 0.2
            while time.thread_time() < until:
                pass
            return super().complete(request)

    desk = desk_of(Busy(says("x")), NoDefense(), limits=ConversationLimits(cpu_s=0.1))
    for _ in range(2):  # Nobody else is there to need the time.
        Client(desk, TOOLS).ask("Hi.")
    Client(desk, TOOLS, owner="other").ask("Hi.")
    with pytest.raises(RequestRefused, match="its share"):
        Client(desk, TOOLS).ask("Hi.")


def test_stopping_ends_every_thread() -> None:
    desk = desk_of(Scripted(calls(("read", {"page": "1"}))), NoDefense())
    clients = [Client(desk, TOOLS) for _ in range(5)]
    for client in clients:
        client.say("Go.")
    desk.stop()
    assert desk.running_count == 0
    with refused(503):
        clients[0].messages.append(result((clients[0].replies[0].message["tool_calls"] or [])[0], "x"))
        clients[0].send()


def test_a_defense_that_asks_for_the_request_again_stands_in_every_turn() -> None:
    one, two = (calls(("read", {"page": page})) for page in "12")
    model = Scripted(one, says("One."), two, says("Two."))
    client = Client(desk_of(model, PromptSandwiching()), TOOLS)
    client.ask("Find the price.")
    client.ask("Find the colour.")
    assert "Find the colour." in text_of(model.asked[3].messages[-1])


def test_a_conversation_begins_with_words_of_the_user() -> None:
    desk = desk_of(Scripted(says("x")), NoDefense())
    with pytest.raises(RequestRefused):
        ask(desk, "me", WireRequest([system("Only this.")], [SEND]))
