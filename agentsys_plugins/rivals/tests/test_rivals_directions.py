"""The rivals: what a perfect and a blind guard give in runs, and that one which finds nothing changes no byte."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatToolResultMessage
from real_results import agentdojo_results, asb_outputs
from scripted_for_border import RoleModel, sanitized

from agentsys.analysis.metrics.comparison import compare_sides
from agentsys.models.chat import ChatRequest, text_of, tool_message
from agentsys.records.case_reader import read_cases
from agentsys_plugins.rivals.datafilter import DataFilter
from agentsys_plugins.rivals.datafilter.defense import SEPARATOR
from agentsys_plugins.rivals.firewall import Firewall
from agentsys_plugins.rivals.promptarmor import PromptArmor
from agentsys_plugins.rivals.result_parsing import ToolResultParsing
from baselines.tool_boundary.boundary_filter import BoundaryDefense, FilterTurn

RIVALS = (
    "firewall_sanitizer",
    "firewall",
    "promptarmor",
    "datafilter",
    "tool_result_parsing",
    "tool_result_parsing_parse_only",
    "tool_result_parsing_check_only",
    "attriguard",
)
PAIRS = ["benchmark.suites=[banking,slack]", "user_tasks=[1,3]", "injection_tasks=[1,3]"]


def scores(records: dict[str, Any], defense: str) -> tuple[list[bool], list[bool]]:
    """Utility of benign cases and success of attacked ones, none of them an error."""
    mine = [r for r in records.values() if r["agentsys"]["case"]["defense"] == defense]
    assert mine and all(r["agentsys"]["status"] == "ok" for r in mine)
    benign = [r["utility"] for r in mine if r["injection_task_id"] is None]
    return benign, [r["security"] for r in mine if r["injection_task_id"] is not None]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from small_runs import Silent, records_in

    from agentsys.runs.run_session import prepare_session

    def run(recall: float) -> dict[str, Any]:
        folder = tmp_path_factory.mktemp("grid")
        defenses = f"defense={','.join(('none', *RIVALS))}"
        options = [f"model.sanitizer_recall={recall}", f"logdir={folder}"]
        attack = "attack=none,important_instructions"
        prepare_session(["model=simulated", defenses, attack, *PAIRS, *options]).execute(Silent())
        return records_in(folder)

    return {recall: run(recall) for recall in (0.0, 1.0)}


@pytest.mark.parametrize("defense", RIVALS)
@pytest.mark.slow
def test_a_perfect_guard_stops_all_and_costs_no_utility_and_a_blind_one_stops_nothing(
    grid: Any, defense: str
) -> None:
    plain, hijacked = scores(grid[1.0], "none")
    benign, attacked = scores(grid[1.0], defense)
    assert benign == plain and all(plain) and not any(attacked) and all(hijacked)
    if defense != "firewall":  # its Minimizer drops what a goal's call can do without
        assert scores(grid[0.0], defense) == scores(grid[0.0], "none")


def test_an_agent_that_repeats_gets_by_the_published_audit_and_not_by_ours(run_cases: Any) -> None:
    records = run_cases(
        [
            "model=simulated",
            "defense=attriguard,attriguard_compat",
            "attack=important_instructions",
            "benchmark.suites=[banking]",
            "user_tasks=[3]",
            "injection_tasks=[1]",
        ]
    )
    assert [scores(records, name)[1] for name in ("attriguard", "attriguard_compat")] == [[False], [True]]


@pytest.mark.slow
def test_the_control_experiment_has_every_row_on_the_same_cases(run_cases: Any, tmp_path: Path) -> None:
    run_cases(
        ["+experiment=control", "model=simulated", "benchmark.suites=[banking]", "limit_per_suite=2"],
        tmp_path,
    )
    cases = read_cases([tmp_path]).cases
    configs = Path(__file__).parents[1] / "configs"
    preset = yaml.safe_load((configs / "experiment/control.yaml").read_text(encoding="utf-8"))
    compared = set(preset["sweep"]["defense"]) - {"none"}
    pairings = compare_sides(cases, "none", draws=50).pairings
    assert {contest.compared for contest in pairings} == compared
    for pairing in pairings.values():
        assert len(pairing.pairs) == 2
        assert pairing.errored == pairing.only_baseline == pairing.only_defense == 0


ASB_DATA = Path(__file__).parents[4] / "shared/data/asb"
GUARDS: dict[str, BoundaryDefense] = {
    "firewall_sanitizer": Firewall(minimizer=False),
    "promptarmor": PromptArmor(),
    "promptarmor, string by string": PromptArmor(unit="strings"),
    "datafilter": DataFilter(skip_trivial=False),
    "datafilter, whole result": DataFilter(unit="result"),
    "check_tool": ToolResultParsing(stages=["check_tool"]),
}


def echo(request: ChatRequest) -> str:
    return text_of(request.messages[-1]).partition(SEPARATOR)[2]


def changed(defense: BoundaryDefense, results: Iterable[ChatToolResultMessage]) -> tuple[list[Any], int]:
    """The results that a guard which finds nothing hands on changed, and how often it was asked."""
    asked = RoleModel(
        {
            "firewall_sanitizer": [sanitized("Something else.", safe=True)],
            "promptarmor_guard": ["No"],
            "datafilter": [echo],
            "result_checker": ["There is nothing to do."],
        }
    )
    (guard,) = defense.boundary_filters(asked, get_suite("v1.2.2", "banking"))
    turn = FilterTurn("Go.", FunctionsRuntime())
    odd = [result for result in results if guard.filter_results(turn, [result])[0] is not result]
    return odd, len(asked.requests)


@cache
def messages(*suites: str) -> list[ChatToolResultMessage]:
    return [tool_message(call, text, error) for call, text, error in agentdojo_results(list(suites))]


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(
    ("suites", "least"),
    [(("banking", "slack", "travel"), 150), pytest.param(("workspace",), 50, marks=pytest.mark.slow)],
)
def test_of_agentdojo(suites: tuple[str, ...], least: int, guard: str) -> None:
    odd, asked = changed(GUARDS[guard], messages(*suites))
    assert odd == [] and asked > least


@pytest.mark.parametrize("data", ["sample", pytest.param(str(ASB_DATA), id="shared")])
@pytest.mark.parametrize("guard", GUARDS)
def test_of_asb(data: str, guard: str) -> None:
    if data != "sample" and not ASB_DATA.is_dir():
        pytest.skip("ASB's own data is not here")
    call = FunctionCall(function="tool", args={}, id="1")
    odd, asked = changed(GUARDS[guard], (tool_message(call, text) for text in asb_outputs(data)))
    assert odd == [] and asked > 0
