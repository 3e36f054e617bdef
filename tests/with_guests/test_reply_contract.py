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
from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.reply_checks import count_oddities
from agentsys.models.reply_contract import ReplyContract, UnusableReply
from agentsys.models.trace import ReplyFlaw, Tracer, span, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from agentsys_plugins.rivals import firewall
from agentsys_plugins.rivals.attriguard.attribution_audit import ATTENUATOR_CONTRACTS, JUDGE_CONTRACT
from agentsys_plugins.rivals.fides.fides_agent import QUERY_CONTRACT as FIDES_QUERY
from agentsys_plugins.rivals.promptarmor import ARMOR_CONTRACT
from agentsys_plugins.rivals.result_parsing import result_parser as parsing
from baselines.camel.camel_agent import PROGRAM_CONTRACT
from baselines.camel.suite_world import QUERY_CONTRACT as CAMEL_QUERY
from baselines.drift.drift_plan import PERMISSION_CONTRACT, PLANNER_CONTRACT
from baselines.drift.drift_validator import FORMATTER_CONTRACT
from baselines.drift.drift_validator import JUDGE_CONTRACT as DRIFT_JUDGE
from baselines.drift.injection_isolator import DETECTOR_CONTRACT
from baselines.isolategpt.app_plan import PLAN_CONTRACT
from baselines.isolategpt.hub import ACTION_CONTRACT
from baselines.progent.policy_model import DECIDE_CONTRACT, UPDATE_CONTRACT, make_contract
from baselines.progent.progent_rules import ProgentSettings
from baselines.progent.prompts import FIRST_CALL
from baselines.tool_filter import FILTER_CONTRACT

CONTRACTS = (
    *(PRIVILEGES_CONTRACT, SANITIZER_CONTRACT, VALIDATOR_CONTRACT, WORKER_CONTRACT),
    *(ARMOR_CONTRACT, *ATTENUATOR_CONTRACTS.values(), JUDGE_CONTRACT),
    *(firewall.MINIMIZER_CONTRACT, firewall.SANITIZER_CONTRACT),
    *(parsing.EXPECTATION_CONTRACT, parsing.EXTRACTION_CONTRACT, parsing.REMOVAL_CONTRACT),
    *(PLANNER_CONTRACT, PERMISSION_CONTRACT, DRIFT_JUDGE, FORMATTER_CONTRACT, DETECTOR_CONTRACT),
    *(make_contract(wording, (), ProgentSettings()) for wording in FIRST_CALL),
    *(DECIDE_CONTRACT, UPDATE_CONTRACT, PROGRAM_CONTRACT, CAMEL_QUERY, FIDES_QUERY),
    *(PLAN_CONTRACT, ACTION_CONTRACT, FILTER_CONTRACT),
)


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


def test_a_reply_that_was_cut_is_asked_for_shorter_and_thoughts_are_no_part_of_one() -> None:
    contract = ReplyContract("guard", "Is it?", "Say yes.", (), {"yes": True}.get)
    model = ScriptedModel({"guard": ["yes", "<think>no</think>yes"]})
    answer = contract.ask(model, [user("It?")], max_tokens=0)
    assert answer.counts == (2, 2) and "cut off" in text_of(model.requests[1].messages[-1])
    model = ScriptedModel({"guard": ["", "<think>no</think>yes"]})
    answer = contract.ask(model, [user("It?")])
    assert answer.value is True and answer.counts == (2, 1) and answer.words == "yes"
    assert [text_of(message) for message in model.requests[1].messages[:2]] == ["It?", "(nothing)"]


def test_what_its_reader_says_is_wrong_is_said_and_published_systems_may_repeat_themselves() -> None:
    def refuse(reply: str) -> None:
        raise UnusableReply(ReplyFlaw.WRONG_FORM, f"{len(reply)} letters are too few.")

    contract = ReplyContract[None]("guard", "Is it?", "Say more.", (), refuse)
    model = ScriptedModel({"guard": ["a", "b", "c"]})
    assert contract.ask(model, [user("It?")]).value is None
    assert text_of(model.requests[1].messages[-1]) == "1 letters are too few. Say more."
    contract.ask(model, [user("It?")], retries=0)
    model = ScriptedModel({"guard": ["a", "b"]})
    answer = contract.ask(model, [user("It?")], repeat=True, heating=0.2)
    assert [request.temperature for request in model.requests] == [0.0, 0.2] and answer.counts == (2, 2)
    assert model.requests[0].messages == model.requests[1].messages


TOOLS = (ToolSpec("get_day", "Tells.", {"type": "object", "properties": {}}),)
ASK = ChatRequest([user("Which day?")], TOOLS)


def test_empty_replies_are_counted_with_those_asked_for_again() -> None:
    assert count_oddities(ASK, ChatReply(assistant("x"), empty_before=2)) == {"empty": 2}
    assert count_oddities(ASK, ChatReply(assistant(" "), empty_before=2)) == {"empty": 3}
