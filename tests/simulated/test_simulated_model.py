"""The simulated model, and what a role of it may know."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import yaml
from agentdojo.functions_runtime import FunctionCall
from simulated_playbook import FOUND, PLAYBOOK, PROMPT, STEAL, TASK, TOOLS, asked, knowledge, result

from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dir
from agentsys.models import chat
from agentsys.simulated.playbook_index import Playbook, PlaybookIndex
from agentsys.simulated.simulated_model import SimulatedModel
from agentsys.simulated.simulated_role import ReaderKind, SimulatedKnowledge, SimulatedOptions, make_knowledge

CARD_FIELDS = {"_target_", "prose_name", "chat_family", "simulated", "context_tokens", "price", "cache"}


def test_the_shipped_yaml_builds_it_and_says_that_it_is_simulated() -> None:
    node = yaml.safe_load((shipped_config_dir() / "model" / "simulated.yaml").read_text(encoding="utf-8"))
    assert node["simulated"] is True
    assert node["_target_"] == f"{SimulatedModel.__module__}.{SimulatedModel.__qualname__}"
    built = SimulatedModel(**{key: value for key, value in node.items() if key not in CARD_FIELDS})
    # Without the setting, as in older configs and records, it is the literal one.
    assert (built.options.reader, SimulatedModel().options.reader) == (ReaderKind.HOSTILE, ReaderKind.LITERAL)
    assert built.options == SimulatedModel(reader="hostile").options
    with pytest.raises(ConfigError, match=r"model\.reader.*hostile"):
        SimulatedModel(reader="hostle")


@pytest.mark.parametrize(
    "options", [{"susceptibility": 1.5}, {"sanitizer_recall": -0.1}, {"susceptibility": "gpt"}]
)
def test_a_probability_out_of_range_is_one_clear_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))} .*0.0 to 1.0"):
        SimulatedModel(**options)


def test_without_a_playbook_it_says_so() -> None:
    with pytest.raises(ConfigError, match="no playbook"):
        SimulatedModel().for_scene(chat.Scene("bank", "u", None, "none")).complete(asked())


def test_roles_are_played_by_their_handlers_and_unknown_ones_by_a_plain_agent() -> None:
    def worker(request: chat.ChatRequest, knowledge: SimulatedKnowledge) -> Any:
        return chat.assistant(f"seed {knowledge.options.seed}")

    model = (
        SimulatedModel()
        .with_playbook(lambda: PLAYBOOK, {"worker": worker})
        .for_scene(chat.Scene("bank", "u", None, "none", seed=7))
    )
    assert chat.text_of(model.complete(asked(role="worker")).message) == "seed 7"
    assert model.complete(asked(role="spoke")).message["tool_calls"]


def test_many_threads_get_the_replies_one_thread_gets() -> None:
    model = SimulatedModel(susceptibility=0.5).with_playbook(lambda: PLAYBOOK, {})
    requests = [asked(*FOUND[: 2 * (number % 2)]) for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        together = [reply.message for reply in pool.map(model.complete, requests)]
    assert together == [model.complete(request).message for request in requests]


SCENE = chat.Scene("bank", "user_task_0", "injection_task_0", "direct")


def draws(scene: chat.Scene | None, probability: float = 0.5) -> list[bool]:
    made = make_knowledge(PlaybookIndex(PLAYBOOK), SimulatedOptions(), scene)
    return [made.draw(probability, "what", str(number)) for number in range(200)]


def test_draws_repeat_in_the_same_case_and_seed() -> None:
    assert draws(SCENE) == draws(SCENE)


def test_draws_differ_with_seed_epoch_and_either_task() -> None:
    others = [
        replace(SCENE, seed=1),
        replace(SCENE, epoch=1),
        replace(SCENE, user_task_id="user_task_1"),
        replace(SCENE, injection_task_id="injection_task_1"),
        None,
    ]
    assert all(draws(SCENE) != draws(other) for other in others)


def test_draws_come_true_about_as_often_as_they_should() -> None:
    assert 70 <= sum(draws(SCENE)) <= 130
    assert not any(draws(SCENE, 0.0))
    assert all(draws(SCENE, 1.0))


def test_tools_tell_suites_apart_that_share_a_request_and_a_goal() -> None:
    shop_calls = (replace(TASK.calls[0], function="browse"),)
    shop = replace(TASK, suite="shop", calls=shop_calls, facts=())
    goal = replace(STEAL, suite="shop", calls=shop_calls)
    made = make_knowledge(PlaybookIndex(Playbook((TASK, shop), (STEAL, goal))), SimulatedOptions(), None)
    assert made.find_task(PROMPT, ("browse",)) == shop
    assert made.find_task(PROMPT, TOOLS) == TASK
    assert made.find_goals(STEAL.goal, ("browse",)) == [goal]
    assert made.find_goals(STEAL.goal, ("nothing",)) == []
    assert len(made.find_goals(STEAL.goal)) == 1


def test_a_value_is_grounded_only_where_it_stands_whole() -> None:
    assert knowledge().is_grounded("Mom's Home", '{"a": "Mom\'s\\n  Home"}')
    assert not knowledge().is_grounded("5", "2024-05-15")


def test_another_value_in_the_field_of_a_fact_is_believed_under_the_hostile_reader_alone() -> None:
    told = json.dumps({"bank_user_task_0_call_1_value_0": "IBAN99", "bank_user_task_0_call_1_value_1": "7"})
    opened = result("open", {"name": "bill.txt"}, told)
    for reader, wanted in (
        ("literal", {"to": "unknown", "amount": "unknown"}),
        ("hostile", {"to": "IBAN99", "amount": 7.0}),
    ):
        model = SimulatedModel(reader=reader).with_playbook(lambda: PLAYBOOK, {})
        (call,) = model.complete(asked(*FOUND, *opened)).message["tool_calls"]
        assert {name: call.args[name] for name in wanted} == wanted


def test_errors_of_tools_are_told_behind_the_role_and_read_from_there() -> None:
    call = FunctionCall(function="find", args={})
    said = [("fine", None), ("", "broke"), ("said: broke", None)]
    results = [chat.tool_message(call, text, error) for text, error in said]
    request = chat.ChatRequest([chat.user("x"), *results], (), "agent")
    assert chat.write_role(request) == "agent;failed=1"
    # What arrives: a wire that knows no errors has their text in place of the output.
    arrived = [chat.tool_message(call, error or text) for text, error in said]
    read = chat.read_role(
        replace(request, role=chat.write_role(request), messages=[chat.user("x"), *arrived])
    )
    assert [message.get("error") for message in read.messages] == [None, None, "broke", None]
    assert read.role == "agent" and chat.read_role(request) is request
