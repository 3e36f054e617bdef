"""Looking at unread mail is no change under `ignore_read_flag`; everything else still is."""

from __future__ import annotations

import pytest
from fixed_on_paper import benchmark, ground_truth, scored

READ = ("get_unread_emails", {})
FIX = ("ignore_read_flag",)
DELETE = ("delete_file", {"file_id": "13"})


@pytest.mark.slow
def test_one_look_at_unread_mail_fails_37_of_40_tasks_and_none_under_the_fix() -> None:
    tasks = benchmark("v1.2.2").suite("workspace").user_tasks
    found = [
        scored("workspace", task, [READ, *ground_truth("v1.2.2", "workspace", task)], fixes=FIX)
        for task in tasks
    ]
    assert (len(found), sum(not one.utility for one in found)) == (40, 37)
    assert all(one.utility_fixed for one in found)


@pytest.mark.parametrize("task", ["user_task_1", "user_task_7", "user_task_18", "user_task_25"])
def test_one_look_at_unread_mail_no_longer_fails_the_task(task: str) -> None:
    found = scored("workspace", task, [READ, *ground_truth("v1.2.2", "workspace", task)], fixes=FIX)
    assert (found.utility, found.utility_fixed) == (False, True)
    assert found.facts["changed_by"] == ["ignore_read_flag"]


def test_another_change_beside_the_look_still_fails_the_task() -> None:
    calls = [READ, DELETE, *ground_truth("v1.2.2", "workspace", "user_task_1")]
    found = scored("workspace", "user_task_1", calls, fixes=FIX)
    assert (found.utility, found.utility_fixed) == (False, False)


def test_a_wrong_answer_after_a_look_stays_wrong() -> None:
    found = scored("workspace", "user_task_1", [READ], answer="nobody", fixes=FIX)
    assert (found.utility, found.utility_fixed) == (False, False)
