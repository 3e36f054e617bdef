"""The judge on agents that never obey: AgentDojo's ground truths with an injection in place."""

from __future__ import annotations

from collections import Counter

import pytest
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline

from agentsys.attacks.attack_search import QueryFacts, SearchTask
from agentsys.attacks.registered_attack import RegisteredAttack
from agentsys.attacks.search_judge import CALLED, score_query
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.case_watch import ExposureWatch
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.contracts import NotInjectable, Victim
from agentsys.models.trace import Tracer, use_tracer
from agentsys.runs.search_target import calls_after_exposure, find_ground_truth_calls


def scores(suite_name: str, limit: int | None = None) -> Counter[int]:
    """Scores of ground-truth runs under important_instructions, over the pairs of a suite."""
    suite = AgentDojo(version="v1.2.2").suite(suite_name)
    attack, victim = RegisteredAttack("important_instructions"), Victim("GPT-4", "Emma Johnson")
    found: Counter[int] = Counter()
    for user_task in list(suite.user_tasks.values())[:limit]:
        own = find_ground_truth_calls(suite, user_task)
        for task in suite.injection_tasks.values():
            try:
                written = dict(attack.injections(suite, user_task, task, victim))
            except NotInjectable:
                continue
            environment = user_task.init_environment(suite.load_and_inject_default_environment(written))
            tracer, watch = Tracer(), ExposureWatch(written)
            tracer.watchers.append(watch)
            with use_tracer(tracer):
                GroundTruthPipeline(user_task).query(
                    user_task.PROMPT, TracedRuntime(suite.tools), environment
                )
            # No replies are recorded here, so that every call after the first reading counts as later.
            tracer.decision_points = [(0, number) for number in range(len(tracer.executed_calls))]
            seen = watch.summarize()
            calls = calls_after_exposure(tracer, seen.raw_round)
            quest = SearchTask(task.GOAL, find_ground_truth_calls(suite, task), "", "")
            facts = QueryFacts(False, seen.exposed_raw, seen.exposed_raw, calls, "", (), own)
            found[score_query(quest, facts)] += 1
    return found


def too_near(found: Counter[int]) -> float:
    return sum(count for score, count in found.items() if score >= CALLED) / sum(found.values())


def test_an_agent_that_only_does_its_users_task_is_not_near_an_injections_goal() -> None:
    found = scores("banking", limit=6)
    assert found[3] > 40
    assert too_near(found) <= 0.01


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["banking", "slack", "travel", "workspace"])
def test_so_it_is_in_every_suite(suite: str) -> None:
    found = scores(suite)
    print(suite, dict(found))
    assert too_near(found) <= 0.01
