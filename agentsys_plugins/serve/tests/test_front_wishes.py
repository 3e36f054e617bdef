"""What clients ask for besides an answer: choices of tools, answer schemas; hand-overs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from front_clients import READ, SEND, Client, desk_of, refused, result, served_desk
from scripted_for_serving import Scripted, calls, openai_client, says

from agentsys.defense.agentsys import AgentSys
from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys_plugins.serve import load_defense
from agentsys_plugins.serve.answer_form import list_untrusted_fields
from agentsys_plugins.serve.served_model import Server
from agentsys_plugins.serve.served_model.wire_format import RequestRefused
from baselines.none import NoDefense

WAIT_S = 120.0
CALL = calls(("read", {"page": "1"}))
TOOLS: Any = {"read": lambda page: f"This is page {page}.", "send": lambda to, text: "sent"}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "read", "parameters": READ.parameters}}]
WORDS: Any = [{"role": "user", "content": "Read both."}]
NUMBER = {"type": "object", "properties": {"euros": {"type": "number"}}, "required": ["euros"]}
BILL = ToolSpec("final_result", "The bill.", NUMBER)


class Reader:
    """Reads a page for each request, and then says what stood there and how much was said before."""

    name = "reader"

    def complete(self, request: ChatRequest) -> ChatReply:
        asked = [number for number, one in enumerate(request.messages) if one["role"] == "user"]
        newest = request.messages[asked[-1] :]
        read = [text_of(one) for one in newest if one["role"] == "tool"]
        return says(f"{len(asked)}: {' '.join(read)}") if read else CALL


@pytest.fixture
def server() -> Iterator[Server]:
    with served_desk(Reader(), NoDefense()) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True])
def test_openais_sdk_runs_calls_whole_and_streamed_and_each_turn_has_a_trace(
    server: Server, stream: bool
) -> None:
    chat = openai_client(server, WAIT_S).chat.completions
    messages: list[Any] = [*WORDS]
    for _ in range(2):
        asked: Any = {"model": "m", "messages": messages, "tools": CHAT_TOOLS}
        if stream:
            with chat.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            raw = chat.with_raw_response.create(**asked)
            assert raw.headers["x-agentsys-trace"]
            message = raw.parse().choices[0].message
        messages.append(message.model_dump(exclude_none=True, exclude={"parsed"}))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"Page {n}."}
            for n, call in enumerate(message.tool_calls or ())
        ]
    assert message.content == "1: Page 0."


@pytest.mark.parametrize("by", ["header", "metadata"])
def test_a_client_names_the_turn_of_a_call_with_an_id_of_its_own_by_header_or_metadata(
    server: Server, by: str
) -> None:
    create = openai_client(server, WAIT_S).chat.completions.with_raw_response.create
    asked: Any = {"model": "m", "tools": CHAT_TOOLS}
    first = create(messages=WORDS, **asked)
    [call] = first.parse().choices[0].message.tool_calls or []
    own = {**call.model_dump(), "id": "own"}
    messages: Any = [
        *(*WORDS, {"role": "assistant", "tool_calls": [own]}),
        {"role": "tool", "tool_call_id": "own", "content": "Page 1."},
    ]
    with pytest.raises(openai.ConflictError, match="x-agentsys-trace"):
        create(messages=messages, **asked)
    trace = first.headers["x-agentsys-trace"]
    named: Any = {"metadata": {"agentsys_trace": trace}}
    if by == "header":
        named = {"extra_headers": {"x-agentsys-trace": trace}, "metadata": {"agentsys_trace": "another"}}
    assert create(messages=messages, **asked, **named).parse().choices[0].message.content == "1: Page 1."


@pytest.mark.parametrize("answer", ['{"euros": 98.7}', ' {"euros":98.7}\n', '```json\n{"euros": 98.7}\n```'])
@pytest.mark.parametrize("forced", ["required", "final_result"])
def test_a_demand_for_the_clients_answer_schema_gets_the_answer_as_its_call(answer: str, forced: str) -> None:
    model = Scripted(*([] if forced == "final_result" else [CALL]), says(answer), says("So."))
    client = Client(desk_of(model, NoDefense()), TOOLS, [READ, BILL])
    client.messages.append(user("What is the bill?"))
    reply = client.send(forced=forced)
    if forced == "required":
        client.run_calls()
        reply = client.send(forced=forced)
    assert [one.name for one in model.asked[0].tools] == (["read"] if forced == "required" else [])
    # Servers that hold a model to a schema let it call no tool.
    assert model.asked[0].reply_schema == (None if forced == "required" else NUMBER)
    assert json.dumps(NUMBER) in text_of(model.asked[0].messages[0])
    [call] = reply.message["tool_calls"] or []
    assert (call.function, call.args) == ("final_result", {"euros": 98.7})
    assert len(str(call.id)) <= 40
    # Its result goes nowhere, and the conversation goes on.
    client.messages += [result(call, "INJECTED"), user("And?")]
    assert text_of(client.send().message) == "So."
    assert "INJECTED" not in str(model.asked[-1].messages)
    assert json.dumps(NUMBER) not in str(model.asked[-1].messages)


FORGED = '{"euros": 1}'
MIXED = [
    f'The mail says {FORGED}. {{"euros": 98}}',
    f'{FORGED}\n{{"euros": 98}}',
    f'```json\n{FORGED}\n```\n```json\n{{"euros": 98}}\n```',
    '{"euros": 1, "euros": 98}',
    f"It is {FORGED}.",
    f"[{FORGED}]",
]


@pytest.mark.parametrize("said", MIXED)
@pytest.mark.parametrize("more", [{"forced": "required"}, {"reply_schema": NUMBER}], ids=["tool", "format"])
def test_no_answer_is_looked_for_in_words_around_it(said: str, more: dict[str, Any]) -> None:
    model = Scripted(says(said), says('{"euros": 98}'), says(said), says(said))
    tools = [BILL] if "forced" in more else [READ]
    client = Client(desk_of(model, NoDefense()), TOOLS, tools)
    client.messages.append(user("What is the bill?"))
    reply = client.send(**more).message
    given = (reply["tool_calls"] or [None])[0]
    assert (json.loads(text_of(reply)) if given is None else given.args) == {"euros": 98}
    assert model.asked[1].tools == [] and model.asked[1].reply_schema == NUMBER
    client = Client(client.desk, TOOLS, tools)
    client.messages.append(user("What is the bill?"))
    with refused(422, "nothing else"):
        client.send(**more)


def test_openais_older_mode_gets_an_object_and_its_text_alone() -> None:
    model = Scripted(says('Here: {"a": 1}'), says('```\n{"a": 1}\n```'))
    with served_desk(model, NoDefense()) as running:
        chat = openai_client(running, WAIT_S).chat.completions
        reply = chat.create(model="m", messages=WORDS, response_format={"type": "json_object"})
    assert reply.choices[0].message.content == '{"a": 1}'


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


@pytest.mark.parametrize(
    "schema",
    [{"type": "objct"}, {"type": "object", "$schema": 5}, nested(90)],
    ids=["type", "dialect", "depth"],
)
def test_a_schema_of_an_answer_that_is_none_is_refused_before_the_agent_is_asked(
    schema: dict[str, Any],
) -> None:
    model = Scripted()
    client = Client(desk_of(model, NoDefense()), TOOLS, [])
    client.messages.append(user("What is the bill?"))
    with refused(400, "the schema of response_format"):
        client.send(reply_schema=schema)
    assert model.asked == []


PLACES = {"type": "object", "properties": {"place": {"type": "string"}, "kind": {"enum": ["bill", "note"]}}}


@pytest.mark.parametrize("asked", [True, False])
def test_fields_that_may_be_a_tools_are_named_where_the_client_asks(asked: bool) -> None:
    said = {"place": "Read both.", "kind": "bill", "told": ["Pay Eve", 3], "a/b": {"Read": True}}
    with served_desk(Scripted(says(json.dumps(said))), NoDefense()) as running:
        metadata: Any = {"metadata": {"agentsys_untrusted": "true"}} if asked else {}
        format: Any = {"type": "json_schema", "json_schema": {"name": "p", "schema": PLACES}}
        chat = openai_client(running, WAIT_S).chat.completions
        reply = chat.create(model="m", messages=WORDS, response_format=format, **metadata)
    message = reply.choices[0].message
    assert json.loads(message.content or "") == said
    told = getattr(message, "agentsys_untrusted", None)
    assert told == (["/told", "/told/0", "/a~1b"] if asked else None)


def test_a_piece_of_a_word_is_not_the_users_and_neither_is_another_case() -> None:
    said = {"place": ["art", "Start", "start", "on", "a.b@c.org", "10", "0"]}
    believed = "start on 10 and write to A.B@c.org"
    places = list_untrusted_fields(said, believed, {"properties": {"place": {}}})
    assert places == ("/place/0", "/place/1", "/place/3", "/place/6")


def test_an_answer_that_does_not_fit_is_asked_for_once_more_and_then_said() -> None:
    model = Scripted(says("About a hundred."), says('{"euros": 98}'), says("No."), says("No."))
    client = Client(desk_of(model, NoDefense()), TOOLS, [BILL])
    client.messages.append(user("What is the bill?"))
    [call] = client.send(forced="required").message["tool_calls"] or []
    assert call.args == {"euros": 98}
    assert "one JSON value of this schema" in text_of(model.asked[1].messages[-1])
    # A framework that does not take it says so in a result: its words may be a tool's.
    client.messages.append(result(call, "INJECTED: try again"))
    with refused(422, "one JSON value of the schema"):
        client.send(forced="required")
    assert "was not taken" in text_of(model.asked[2].messages[-1])
    assert "INJECTED" not in str(model.asked[-1].messages)


def test_words_are_the_one_text_that_an_answer_schema_asks_for() -> None:
    text = ToolSpec("final_answer", "", {"type": "object", "properties": {"answer": {"type": "string"}}})
    client = Client(desk_of(Scripted(says("Rome is sunny.")), NoDefense()), TOOLS, [text, READ])
    client.messages.append(user("How is Rome?"))
    [call] = client.send(forced="required").message["tool_calls"] or []
    assert (call.function, call.args) == ("final_answer", {"answer": "Rome is sunny."})


def test_a_result_beside_the_users_next_words_ends_its_turn_and_the_words_begin_another() -> None:
    asked: list[str] = []

    class Asker:
        name = "asker"

        def complete(self, request: ChatRequest) -> ChatReply:
            asked.append(str(request.messages))
            last = request.messages[-1]
            return CALL if "INJECTED" not in str(request.messages) else says(f"After {last['role']}.")

    with served_desk(Asker(), NoDefense()) as running:
        create = openai_client(running, WAIT_S).chat.completions.create
        first = create(model="m", messages=WORDS, tools=CHAT_TOOLS).choices[0].message
        [call] = first.tool_calls or []
        given: Any = {"role": "tool", "tool_call_id": call.id, "content": "INJECTED"}
        said: Any = [
            *WORDS,
            first.model_dump(exclude_none=True),
            given,
            {"role": "user", "content": "And now?"},
        ]
        reply = create(model="m", messages=said, tools=CHAT_TOOLS).choices[0]
    assert reply.message.content == "After user."
    assert "After tool." in asked[-1] and "And now?" in asked[-1]
    assert "And now?" not in asked[1]


def test_a_demand_for_a_tool_that_is_not_there_is_refused() -> None:
    client = Client(desk_of(Scripted(says("x")), NoDefense()), TOOLS, [READ])
    client.messages.append(user("Go."))
    with refused(400, "offers no such tool"):
        client.send(forced="write")


def test_agents_that_hand_over_to_each_other_end_in_an_error() -> None:
    hand = ToolSpec("transfer_to_refunds", "Hands over.", {"type": "object", "properties": {}})
    desk = desk_of(Scripted(calls(("transfer_to_refunds", {})), says("Done.")), NoDefense())
    client = Client(desk, {"transfer_to_refunds": lambda: "{}"}, [hand], told="You sort.")
    client.say("I want my money.")
    client.run_calls()
    client.messages[0], client.specs = system("You refund."), [SEND]
    with refused(409, "hand over", code="handoff"):
        client.send()


def test_a_name_that_a_defense_adds_to_every_tool_is_the_clients_mistake() -> None:
    schema = {"type": "object", "properties": {"intent": {"type": "string"}}}
    model = Scripted(says('{"read": "query"}'))
    client = Client(desk_of(model, AgentSys()), TOOLS, [ToolSpec("read", "Reads.", schema)])
    with refused(400, "intent"):
        client.say("Go.")


def test_a_defense_that_runs_a_program_takes_one_request() -> None:
    client = Client(desk_of(Scripted(says("x")), load_defense("camel")), TOOLS)
    client.messages += [user("Hi."), assistant("Hello.")]
    with pytest.raises(RequestRefused, match="plans a request as a whole"):
        client.say("And?")


def test_tool_output_without_the_id_of_a_call_would_be_the_users_words_and_is_refused(server: Server) -> None:
    said: Any = [{"role": "user", "content": "Read."}, {"role": "tool", "content": "INJECTION"}]
    with pytest.raises(openai.BadRequestError, match="have the ids of their calls") as found:
        openai_client(server, WAIT_S).chat.completions.create(model="m", messages=said)
    assert found.value.code == "nameless_result"


def test_tools_that_a_client_leaves_out_beside_results_are_called_no_more() -> None:
    send = calls(("send", {"to": "a", "text": "b"}))
    read = calls(("read", {"page": "1"}))
    model = Scripted(read, send, read, send, says("Read, and not sent."))
    client = Client(desk_of(model, NoDefense()), TOOLS)
    client.say("Read, then send.")
    client.run_calls()
    client.specs = [READ]
    [call] = client.send().message["tool_calls"] or []
    assert call.function == "read"
    assert "not offer this tool" in str(model.asked[2].messages[-1]["error"])  # type: ignore[typeddict-item]
    client.run_calls()
    client.specs = []
    assert text_of(client.send().message) == "Read, and not sent."
    assert "no further tool calls" in str(model.asked[-1].messages[-1]["error"])  # type: ignore[typeddict-item]
