"""The length of a user task's ground truth: kept in records, and shipped for files that lack it."""

from __future__ import annotations

from typing import Any

import pytest

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.records.published_facts import find_ground_truth_length
from agentsys.runs.build_record import ground_truth_length


@pytest.mark.parametrize("version", ["v1", "v1.2.2"])
def test_shipped_lengths_are_those_of_the_installed_agentdojo(version: str) -> None:
    suite = AgentDojo(version=version).suite("banking")
    found = {task: ground_truth_length(suite, task) for task in suite.user_tasks}
    assert found == {task: find_ground_truth_length(version, "banking", task) for task in suite.user_tasks}
    assert None not in found.values()


def test_a_file_without_a_known_version_gets_the_value_of_the_first_version() -> None:
    assert find_ground_truth_length("unrecorded", "banking", "user_task_0") == find_ground_truth_length(
        "v1", "banking", "user_task_0"
    )


def test_a_task_whose_ground_truth_fails_has_no_length_and_costs_no_case() -> None:
    class Task:
        def init_environment(self, environment: Any) -> Any:
            raise KeyError("nothing here")

    class Suite:
        user_tasks = {"user_task_0": Task()}  # noqa: RUF012

        def load_and_inject_default_environment(self, injections: dict[str, str]) -> None:
            return None

    assert ground_truth_length(Suite(), "user_task_0") is None
