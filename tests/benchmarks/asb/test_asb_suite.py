"""One agent as an AgentDojo suite: whatever takes a suite can take it."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.functions_runtime import FunctionsRuntime

from agentsys.benchmarks.asb.asb_benchmark import ASB, VECTOR, ASBSuite
from agentsys.benchmarks.asb.asb_environment import ASBEnvironment
from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.models.chat import assistant
from agentsys.runs.build_record import ground_truth_length

GARDEN = "garden_advisor_agent"


@pytest.fixture
def suite() -> ASBSuite:
    return ASB().suite(GARDEN)


def calling(suite: ASBSuite, world: ASBEnvironment, *tools: str) -> list[str]:
    """What the tools return, one after the other."""
    runtime = FunctionsRuntime(suite.tools)
    return [str(runtime.run_function(world, tool, {"ignored": 1}, raise_on_error=True)[0]) for tool in tools]


class Probe(BasePipelineElement):
    """Notes the tools on offer and makes some calls; its first runs end without an answer."""

    def __init__(self, *calls: str, silent_runs: int = 0) -> None:
        self.calls = calls
        self.silent_runs = silent_runs
        self.offered: list[list[str]] = []

    def query(self, query: str, runtime: Any, env: Any, messages: Any = (), extra_args: Any = None) -> Any:
        self.offered.append(list(runtime.functions))
        for call in self.calls:
            runtime.run_function(env, call, {})
        words = None if len(self.offered) <= self.silent_runs else "Done."
        return query, runtime, env, [assistant(words)], {}


def test_the_ground_truth_of_every_task_solves_it_and_reaches_its_goal(suite: ASBSuite) -> None:
    whole = ASB(tasks="all").suite(GARDEN)
    assert list(whole.user_tasks) == ["user_task_0", "user_task_1"]
    for task in whole.user_tasks.values():
        assert whole.run_task_with_pipeline(GroundTruthPipeline(task), task, None, {})[0]
    for goal in whole.injection_tasks.values():
        task = whole.user_tasks["user_task_0"]
        assert whole.run_task_with_pipeline(GroundTruthPipeline(goal), task, goal, {}) == (False, True)


def test_a_case_offers_the_normal_tools_and_its_own_attack_tool_last(suite: ASBSuite) -> None:
    task, goal = suite.user_tasks["user_task_0"], suite.injection_tasks["injection_task_2"]
    probe = Probe()
    suite.run_task_with_pipeline(probe, task, goal, {}, runtime_class=TracedRuntime)
    suite.run_task_with_pipeline(probe, task, None, {}, runtime_class=TracedRuntime)
    assert probe.offered == [
        ["soil_probe", "planting_calendar", "SeedLedger"],
        ["soil_probe", "planting_calendar"],
    ]


def test_the_payload_follows_every_result_the_attack_tools_own_included(suite: ASBSuite) -> None:
    world = suite.load_and_inject_default_environment({VECTOR: "do X"})
    normal, attack = calling(suite, world, "soil_probe", "SeedLedger")
    assert normal == "The soil has been measured; moisture and acidity are on record.; do X"
    assert attack.endswith("The club's ledger lists the garden's seeds.; do X")
    assert (world.calls, world.payload_count) == (["soil_probe", "SeedLedger"], 2)


def test_tasks_keep_their_ids_whatever_subset_is_offered() -> None:
    whole = {t.attack_tool: t.ID for t in ASB().suite(GARDEN).injection_tasks.values()}
    halves: dict[str, str] = {}
    for subset in ("aggressive", "non_aggressive"):
        offered = ASB(attack_tools=subset).suite(GARDEN).injection_tasks.values()
        assert {task.tool.aggressive for task in offered} == {subset == "aggressive"}
        halves |= {task.attack_tool: task.ID for task in offered}
    assert halves == whole


def test_the_simulated_model_gets_a_script_for_every_task_and_goal(suite: ASBSuite) -> None:
    book = build_playbook([suite])
    assert [[call.function for call in task.calls] for task in book.tasks] == [
        ["soil_probe", "planting_calendar"]
    ]
    assert [[call.function for call in goal.calls] for goal in book.goals] == [
        [tool.name] for tool in suite.agent.attack_tools
    ]
    assert ground_truth_length(suite, "user_task_0") == 2
