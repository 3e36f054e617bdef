"""Every fix leaves every ground truth as it is scored officially, in every version."""

from __future__ import annotations

import pytest
from fixed_on_paper import VERSIONS, Scores, benchmark, ground_truth, scored

FAIL_THEIR_OWN = {"v1": {("workspace", "user_task_7")}, "v1.1": {("workspace", "user_task_7")}}
"""User tasks whose own ground truth AgentDojo's check refuses in early versions."""


def of_all_tasks(version: str) -> dict[tuple[str, str], Scores]:
    return {
        (suite, task): scored(suite, task, ground_truth(version, suite, task), version=version)
        for suite in benchmark(version).suite_names()
        for task in benchmark(version).suite(suite).user_tasks
    }


def test_all_97_ground_truths_of_the_newest_version_pass_under_every_fix() -> None:
    found = of_all_tasks("v1.2.2")
    assert len(found) == 97
    assert [task for task, scores in found.items() if not (scores.utility and scores.utility_fixed)] == []
    assert [task for task, scores in found.items() if scores.facts["changed_by"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS[:-1])
def test_no_fix_changes_a_ground_truths_score_in_older_versions(version: str) -> None:
    found = of_all_tasks(version)
    assert len(found) == 97
    assert {task for task, scores in found.items() if not scores.utility} == FAIL_THEIR_OWN.get(
        version, set()
    )
    assert [task for task, scores in found.items() if scores.facts["changed_by"]] == []
