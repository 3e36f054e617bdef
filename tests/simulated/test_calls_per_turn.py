"""`model.calls_per_turn`: reading calls that need no result of each other are made in one turn."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.types import ChatMessage
from simulated_playbook import specs

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.defense.agentsys import AgentSys
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, tool_message, user
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from agentsys.runs.compose import compose
from agentsys.simulated.playbook_index import Fact, Playbook, ScriptedCall, TaskScript
from agentsys.simulated.simulated_model import SimulatedModel

PROMPT = "Compare both bills, and pay the dearer one."
SCRIPT = TaskScript(
    "bank",
    "user_task_7",
    PROMPT,
    (
        ScriptedCall("get_bill", {"number": "1"}),
        ScriptedCall("get_bill", {"number": "2"}),
        ScriptedCall("read_terms", {"of": "SHOP99"}),
        ScriptedCall("pay", {"to": "SHOP99"}),
        ScriptedCall("get_balance", {}),
        ScriptedCall("get_receipt", {}),
    ),
    "Paid.",
    (Fact("payee", "SHOP99", 1),),
)
TOOLS = ("get_bill", "read_terms", "pay", "get_balance", "get_receipt")


def _list_turns(calls_per_turn: int, outputs: dict[str, str]) -> list[list[str]]:
    model = SimulatedModel(calls_per_turn=calls_per_turn).with_playbook(lambda: Playbook((SCRIPT,), ()), {})
    messages: list[ChatMessage] = [user(PROMPT)]
    turns = []
    while calls := (reply := model.complete(ChatRequest(messages, specs(*TOOLS))).message)["tool_calls"]:
        turns.append([call.function for call in calls])
        assert len({call.id for call in calls}) == len(calls)
        messages += [reply, *(tool_message(call, outputs.get(call.function, "ok")) for call in calls)]
    return turns


BILLS = {"get_bill": "SHOP99 wants 5"}


@pytest.mark.parametrize(
    ("calls_per_turn", "turns"),
    [
        (1, [["get_bill"], ["get_bill"], ["read_terms"], ["pay"], ["get_balance"], ["get_receipt"]]),
        (2, [["get_bill", "get_bill"], ["read_terms"], ["pay"], ["get_balance", "get_receipt"]]),
        (9, [["get_bill", "get_bill"], ["read_terms"], ["pay"], ["get_balance", "get_receipt"]]),
    ],
)
def test_a_call_waits_for_a_value_and_a_call_that_acts_stands_alone(
    calls_per_turn: int, turns: list[list[str]]
) -> None:
    assert _list_turns(calls_per_turn, BILLS) == turns


@pytest.mark.parametrize("defense", [None, AgentSys()])
def test_the_tasks_of_a_suite_are_solved_as_before_in_fewer_turns(defense: AgentSys | None) -> None:
    suite = AgentDojo("v1.2.2").suite("slack")
    solved, asked = [], []
    for calls_per_turn in (1, 4):
        model = SimulatedModel(calls_per_turn=calls_per_turn).with_playbook(
            lambda: build_playbook([suite]), AgentSys().simulated_roles()
        )
        counts = [_solve(model, suite, task, defense) for task in suite.user_tasks.values()]
        solved.append(sum(done for done, _ in counts))
        asked.append(sum(turns for _, turns in counts))
    assert solved[1] >= solved[0] > 15
    assert asked[1] < 0.85 * asked[0]


def _solve(model: SimulatedModel, suite: Any, task: Any, defense: AgentSys | None) -> tuple[bool, int]:
    asked: list[str] = []

    class Counted:
        name = model.name

        def complete(self, request: ChatRequest) -> Any:
            asked.append(request.role)
            return model.complete(request)

    plain = tool_loop(Counted(), default_system_message(suite), name="none")
    pipeline = plain if defense is None else defense.pipeline(Counted(), suite)
    utility, _ = suite.run_task_with_pipeline(pipeline, task, None, {}, runtime_class=TracedRuntime)
    return utility, sum(role in ("agent", "main") for role in asked)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "two"])
def test_another_value_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"calls_per_turn is .*; give a whole number from 1 on"):
        SimulatedModel(calls_per_turn=value)


def test_its_default_changes_no_hash_of_earlier_records_and_another_value_is_another_model() -> None:
    (usual,) = compose(["model=simulated"])
    (several,) = compose(["model=simulated", "model.calls_per_turn=3"])
    assert "calls_per_turn" not in usual.identity["model"]
    assert several.labels["model"] == f"{usual.labels['model']}+calls_per_turn=3"
    assert several.config_hash != usual.config_hash
