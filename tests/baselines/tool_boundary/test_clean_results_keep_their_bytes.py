"""A guard that finds nothing changes nothing: every benign result of AgentDojo and ASB keeps its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatToolResultMessage
from real_results import agentdojo_results, asb_outputs
from scripted_for_border import RoleModel, sanitized

from agentsys.models.chat import ChatRequest, text_of, tool_message
from baselines.datafilter import DataFilter
from baselines.datafilter.defense import SEPARATOR
from baselines.firewall import Firewall
from baselines.promptarmor import PromptArmor
from baselines.result_parsing import ToolResultParsing
from baselines.tool_boundary.boundary_filter import BoundaryDefense, FilterTurn

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


def messages(suites: list[str]) -> list[ChatToolResultMessage]:
    return [tool_message(call, text, error) for call, text, error in agentdojo_results(suites)]


@pytest.fixture(scope="module")
def small_suites() -> list[ChatToolResultMessage]:
    return messages(["banking", "slack", "travel"])


@pytest.fixture(scope="module")
def workspace() -> list[ChatToolResultMessage]:
    return messages(["workspace"])


@pytest.mark.parametrize("guard", GUARDS)
def test_of_agentdojo(small_suites: list[ChatToolResultMessage], guard: str) -> None:
    odd, asked = changed(GUARDS[guard], small_suites)
    assert odd == [] and asked > 150


@pytest.mark.slow
@pytest.mark.parametrize("guard", GUARDS)
def test_of_agentdojos_workspace(workspace: list[ChatToolResultMessage], guard: str) -> None:
    odd, asked = changed(GUARDS[guard], workspace)
    assert odd == [] and asked > 50


@pytest.mark.parametrize("data", ["sample", pytest.param(str(ASB_DATA), id="shared")])
@pytest.mark.parametrize("guard", GUARDS)
def test_of_asb(data: str, guard: str) -> None:
    if data != "sample" and not ASB_DATA.is_dir():
        pytest.skip("ASB's own data is not here")
    call = FunctionCall(function="tool", args={}, id="1")
    odd, asked = changed(GUARDS[guard], (tool_message(call, text) for text in asb_outputs(data)))
    assert odd == [] and asked > 0
