"""The planned conversation around stub models: turns, tools on offer, rounds, numbering, ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.benchmarks.asb.asb_plan import (
    CLOSING,
    MAX_TRIES,
    NO_PLAN,
    PLANNER_ROLE,
    find_instruction_tools,
    find_planning,
)
from agentsys.benchmarks.asb.planned_model import AsbMode, PlannedModel, wrap_planned_model
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    assistant,
    system,
    text_of,
    user,
)
from agentsys.models.prompted_tools import write_calls, write_reply, write_tools
from agentsys.models.trace import Tracer, use_tracer

PLANNED = [mode for mode in AsbMode if mode.has_plan]
TOOLS = [ToolSpec(name, f"About {name}.", {"properties": {}}) for name in ("look_up", "note", "Evil")]
BEGIN = [system("You are a clerk."), user("File my papers.")]


class Scripted:
    """Replays replies, keeps every request, and fails when it runs out."""

    name = "scripted"

    def __init__(self, *replies: str | list[str] | ChatAssistantMessage) -> None:
        self.replies = list(replies)
        self.asked: list[ChatRequest] = []

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, list):
            number = len(self.asked)
            calls = [FunctionCall(function=name, args={}, id=f"{name}_{number}") for name in reply]
            return ChatReply(assistant(None, calls))
        return ChatReply(assistant(reply) if isinstance(reply, str) else reply)

    def turns(self) -> list[str]:
        """The last user message of each request, or the role of those that do not act."""
        return [
            [text_of(m) for m in r.messages if m["role"] == "user"][-1] if r.role == "agent" else r.role
            for r in self.asked
        ]


def plan(*steps: Sequence[str]) -> str:
    return json.dumps([{"message": f"Part {n}.", "tool_use": [*tools]} for n, tools in enumerate(steps)])


def answered(
    messages: Sequence[ChatMessage], reply: ChatAssistantMessage, text: str = "out"
) -> list[ChatMessage]:
    """The defense's conversation after its loop has run the calls of a reply."""

    def results() -> Iterator[ChatMessage]:
        for call in reply["tool_calls"] or ():
            content = user(f"{text} of {call.function}")["content"]
            yield {
                "role": "tool",
                "content": content,
                "tool_call_id": call.id,
                "tool_call": call,
                "error": None,
            }

    return [*messages, reply, *results()]


def loop(
    model: ChatModel, tools: Sequence[ToolSpec] = TOOLS, begin: Sequence[ChatMessage] = BEGIN
) -> list[ChatMessage]:
    """A plain agent: ask, run what is called, ask again, until the reply has no calls."""
    messages = list(begin)
    for _ in range(9):
        messages = answered(messages, model.complete(ChatRequest(messages, tools)).message)
        if messages[-1]["role"] == "assistant":
            return messages
    raise AssertionError("the conversation does not end")


def driven(
    model: ChatModel, mode: AsbMode = AsbMode.CLEAN_PLAN, attack_tool: str | None = "Evil"
) -> PlannedModel:
    found = wrap_planned_model(model, mode=mode, attack_tool=attack_tool)
    assert isinstance(found, PlannedModel)
    return found


@pytest.mark.parametrize("mode", PLANNED)
def test_a_plan_turn_without_tools_comes_first_then_one_call_per_step(mode: AsbMode) -> None:
    model = Scripted(plan(["look_up"], ["note"]), ["look_up"], ["note"])
    messages = loop(driven(model, mode))
    assert [(r.role, len(r.tools)) for r in model.asked] == [(PLANNER_ROLE, 0), ("agent", 3), ("agent", 3)]
    assert [m["role"] for m in messages[2:]] == ["assistant", "tool", "assistant", "tool", "assistant"]
    assert text_of(messages[-1]) == CLOSING


def test_a_call_where_nothing_was_on_offer_is_not_made() -> None:
    model = Scripted(plan([], ["note"]), ["Evil"], ["note"])
    messages = loop(driven(model, AsbMode.FAITHFUL, attack_tool=None))
    assert [
        call.function for m in messages if m["role"] == "assistant" for call in m["tool_calls"] or ()
    ] == ["note"]


def test_the_model_reads_results_as_the_defense_rewrote_them() -> None:
    model = driven(inner := Scripted(plan(["look_up"], ["note"]), ["look_up"], ["note"]), AsbMode.FAITHFUL)
    reply = model.complete(ChatRequest(BEGIN, TOOLS)).message
    model.complete(ChatRequest([*answered(BEGIN, reply, "cleaned"), user("Mind your task.")], TOOLS))
    told, reminder, _ = inner.asked[-1].messages[-3:]
    assert "cleaned of look_up" in text_of(told)
    assert reminder == user("Mind your task.")


BAD = ["```\n[]\n```", "[]", '[{"message": "x"}]']


def test_a_reply_that_is_no_plan_is_noted_and_the_plan_asked_for_again() -> None:
    model = Scripted(*BAD, plan(["look_up"], []), ["look_up"], "done")
    tracer = Tracer()
    with use_tracer(tracer):
        loop(driven(model))
    planning = find_planning(tracer.spans)
    assert planning is not None and (planning.tries, planning.has_failed) == (4, False)
    notes = [text_of(m) for m in model.asked[3].messages if m["role"] == "assistant"]
    assert len(notes) == 3 and all(note.startswith("[Thinking]: ") for note in notes)
    assert model.asked[3].messages[-1]["role"] == "user"
    # The counter counts tries at the plan as well.
    assert model.turns()[4].startswith("Step number 5 ")
    assert set(notes) <= {text_of(message) for message in model.asked[-1].messages}


def test_after_ten_replies_without_a_plan_the_case_ends_in_words() -> None:
    model = Scripted(*["no plan"] * MAX_TRIES)
    tracer = Tracer()
    with use_tracer(tracer):
        messages = loop(driven(model))
    planning = find_planning(tracer.spans)
    assert planning is not None and planning.has_failed and planning.tries == 10
    assert text_of(messages[-1]) == NO_PLAN


def test_after_a_defense_went_back_what_it_was_handed_later_is_forgotten() -> None:
    inner = Scripted(plan(["look_up"], ["note"], []), ["look_up"], ["note"], ["look_up", "note"], ["note"])
    model = driven(inner)
    first = model.complete(ChatRequest(BEGIN, TOOLS)).message
    model.complete(ChatRequest(answered(BEGIN, first), TOOLS))
    again = model.complete(ChatRequest(BEGIN, TOOLS)).message
    model.complete(ChatRequest(answered(BEGIN, again), TOOLS))
    # Two results now, where there was one: the longer conversation is not the old one with a remark.
    assert [m["role"] for m in inner.asked[-1].messages][-4:] == ["assistant", "tool", "tool", "user"]
    assert "Part 1." in inner.turns()[-1]


def test_a_question_asked_again_with_a_remark_keeps_the_remark_behind_the_steps_turn() -> None:
    inner = Scripted(plan([], ["note"], []), "words", ["note"], ["look_up"])
    model = driven(inner)
    model.complete(ChatRequest(BEGIN, TOOLS))
    model.complete(ChatRequest([*BEGIN, user("I could not read that.")], TOOLS))
    *_, thought, turn, remark = inner.asked[-1].messages
    assert [text_of(message) for message in (thought, remark)] == [
        "[Thinking]: words",
        "I could not read that.",
    ]
    assert "Part 1." in text_of(turn)


def prompted_tools() -> list[ChatMessage]:
    return [system(f"Act by calls in tags.\n{write_tools(TOOLS)}"), user("File my papers.")]


def test_tools_told_in_a_system_message_are_planned_with_and_calls_in_text_are_rounds() -> None:
    said = write_reply("", write_calls([("look_up", {})]), "")
    inner = Scripted(plan(["look_up"], []), said, "done")
    model = driven(inner)
    begin = prompted_tools()
    tracer = Tracer()
    with use_tracer(tracer):
        assert text_of(model.complete(ChatRequest(begin)).message) == said
        call = FunctionCall(function="look_up", args={}, id="1")
        after = answered(begin, assistant(said, [call]))
        assert text_of(model.complete(ChatRequest(after)).message) == "done"
    assert find_instruction_tools(text_of(inner.asked[0].messages[1])) == ["look_up", "note", "Evil"]
    assert [s.decision["called"] for s in tracer.spans if s.kind == "step"] == [["look_up"], []]


@pytest.mark.parametrize("said", ["<function_call>[look_up(</function_call>", "<function_call>[look_up()]"])
def test_calls_in_text_that_cannot_be_read_are_left_to_the_defense(said: str) -> None:
    inner = Scripted(plan(["look_up"], []), said)
    assert text_of(driven(inner).complete(ChatRequest(prompted_tools())).message) == said


@pytest.mark.parametrize("where", [0, 1])
def test_a_model_error_goes_through_wherever_it_happens(where: int) -> None:
    class Failing(Scripted):
        def complete(self, request: ChatRequest) -> ChatReply:
            if len(self.asked) == where:
                raise ModelError(ErrorKind.SERVER_ERROR, "down")
            return super().complete(request)

    with pytest.raises(ModelError, match="down"):
        loop(driven(Failing(plan([], []), "a")))
