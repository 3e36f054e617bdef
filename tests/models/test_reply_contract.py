"""A role's contract: no placeholder in its prompt, echoes counted, and no request sent twice."""

from __future__ import annotations

import json

import pytest
from agentdojo.types import ChatMessage
from scripted_for_defense import ScriptedModel

from agentsys.defense.privileges import PRIVILEGES_CONTRACT
from agentsys.defense.sanitizer import SANITIZER_CONTRACT
from agentsys.defense.validator import VALIDATOR_CONTRACT
from agentsys.defense.worker import WORKER_CONTRACT
from agentsys.models.chat import ChatRequest, system, text_of, user
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, Tracer, span, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from baselines.tool_boundary.guard_question import ask_guard

CONTRACTS = (PRIVILEGES_CONTRACT, SANITIZER_CONTRACT, VALIDATOR_CONTRACT, WORKER_CONTRACT)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.role)
def test_the_worked_examples_stand_in_the_prompt_and_can_be_read(contract: ReplyContract[object]) -> None:
    for asked, answered in contract.examples:
        assert asked in contract.prompt and answered in contract.prompt
        assert contract.read(answered) is not None
        echoed = (
            contract.read_reply(f"```json\n{json.dumps(json.loads(answered))}\n```")
            if answered[0] == "{"
            else None
        )
        assert echoed is None or (echoed is ReplyFlaw.ECHOED) is (len("".join(answered.split())) >= 16)


def test_a_flaw_is_counted_by_role_and_kind_and_the_next_request_says_what_was_wrong() -> None:
    example = SANITIZER_CONTRACT.examples[0][1]
    model = ScriptedModel({"sanitizer": [example, "nothing", '{"spans": ["x"]}']})
    messages: list[ChatMessage] = [system(SANITIZER_CONTRACT.prompt), user("x y")]
    with use_tracer(tracer := Tracer()), span("sanitizer"):
        answer = SANITIZER_CONTRACT.ask(RecordingModel(model), messages, retries=2)
    assert answer.value == ["x"] and len(answer.replies) == 3
    odd = [call.odd for node in tracer.spans for call in node.calls]
    assert odd == [{"echoed": 1}, {"unreadable": 1}, {}]
    last = [text_of(message) for message in model.requests[2].messages]
    assert last[2] == example and "repeats the example" in last[3] and "not of the form" in last[5]


def test_a_form_goes_to_the_server_where_its_file_asks_for_it_and_no_tools_are_on_offer() -> None:
    request = SANITIZER_CONTRACT.request([user("x")])
    assert request.schema_to_send(structured=False) is None
    assert request.schema_to_send(structured=True) == SANITIZER_CONTRACT.schema


def test_a_guard_is_told_that_its_reply_could_not_be_read() -> None:
    model = ScriptedModel({"guard": ["hm", "yes"]})
    answer = ask_guard(model, ChatRequest([user("Is it?")], role="guard"), {"yes": True}.get)
    assert answer.value is True and answer.unreadable == 1
    first, second = ([text_of(message) for message in request.messages] for request in model.requests)
    assert first == ["Is it?"] and second[:2] == ["Is it?", "hm"] and "could not be read" in second[2]
