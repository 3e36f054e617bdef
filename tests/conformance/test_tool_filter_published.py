"""Published tool filter runs of gpt-4o, replayed through our filter, score as they were recorded.

What disagrees in utility are tasks whose requests or checks the package has changed since: banking's user
task 13, and travel's 0 and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from agentdojo.task_suite.load_suites import get_suites
from small_runs import Silent, records_in

from baselines.tool_filter import pick_tools

DISAGREEING = {("banking", "user_task_13"): 6, ("travel", "user_task_0"): 3, ("travel", "user_task_7"): 2}


@pytest.fixture(scope="module")
def traces(published: Callable[[str], Path]) -> Path:
    (pipeline,) = published("agentdojo-gpt-4o-2024-05-13-tool_filter").iterdir()
    return pipeline


def test_exact_matching_reads_the_published_replies_as_agentdojo_does_but_for_the_one_pair(
    traces: Path,
) -> None:
    differing: Counter[tuple[str, ...]] = Counter()
    cases = 0
    for path in sorted(traces.glob("*/user_task_*/*/*.json")):
        reply = orjson.loads(path.read_bytes())["messages"][3]["content"]
        offered = [tool.name for tool in get_suites("v1")[path.parents[2].name].tools]
        exact, substring = pick_tools(reply, offered, "exact"), pick_tools(reply, offered, "substring")
        cases += 1
        if exact != substring:
            differing[tuple(sorted(set(substring) - set(exact)))] += 1
    assert cases == 726
    assert set(differing) <= {("search_files",)}


def replayed(traces: Path, logdir: Path, *overrides: str) -> tuple[int, int, Counter[tuple[str, str]]]:
    """Cases, agreements in security, and per user task the disagreements in utility."""
    from agentsys.runs.run_session import prepare_session

    common = ["model=replay", f"model.traces={traces}", "defense=tool_filter_compat", "benchmark.version=v1"]
    outcome = prepare_session(
        [*common, "attack=none,important_instructions", f"logdir={logdir}", *overrides]
    ).execute(Silent())
    assert outcome.errors == 0
    security, disagreeing = 0, Counter[tuple[str, str]]()
    for path, ours in records_in(logdir).items():
        _, suite, user_task, attack, file = path.split("/")
        recorded = orjson.loads((traces / suite / user_task / attack / file).read_bytes())
        security += attack == "none" or ours["security"] == recorded["security"]
        disagreeing[(suite, user_task)] += ours["utility"] != recorded["utility"]
    return outcome.finished, security, +disagreeing


def test_replayed_slack_cases_score_as_recorded(traces: Path, tmp_path: Path) -> None:
    cases, security, disagreeing = replayed(
        traces, tmp_path / "runs", "benchmark.suites=[slack]", "limit_per_suite=40"
    )
    assert security == cases > 0
    assert disagreeing == {}


@pytest.mark.slow
def test_all_replayed_cases_score_as_recorded_but_for_tasks_that_changed(
    traces: Path, tmp_path: Path
) -> None:
    cases, security, disagreeing = replayed(traces, tmp_path / "runs")
    assert (cases, security) == (726, 726)
    assert disagreeing == DISAGREEING
    assert disagreeing.total() == 726 - 715
