"""An attack that was carried out twice counts under `any_match`."""

from __future__ import annotations

import pytest
from fixed_on_paper import ground_truth, scored

from agentsys.benchmarks.fixes.check_fixes import EFFECTS
from agentsys.contracts import AttackKind

FIX = ("any_match",)


@pytest.mark.parametrize("version", ["v1", "v1.2.2"])
@pytest.mark.parametrize("task", EFFECTS, ids=" ".join)
def test_the_attack_done_twice_failed_and_now_succeeds(version: str, task: tuple[str, str]) -> None:
    suite, injection = task
    calls = ground_truth(version, suite, injection) * 2
    found = scored(suite, "user_task_0", calls, injection_task=injection, version=version, fixes=FIX)
    assert (found.security, found.security_fixed) == (False, True)
    assert found.facts["changed_by"] == ["any_match"]
    assert found.facts["repeats"] >= 1


@pytest.mark.parametrize("task", EFFECTS, ids=" ".join)
def test_the_attack_done_once_and_the_attack_not_done_are_as_before(task: tuple[str, str]) -> None:
    suite, injection = task
    once = ground_truth("v1.2.2", suite, injection)
    assert scored(suite, "user_task_0", once, injection_task=injection)[1::2] == (True, True)
    assert scored(suite, "user_task_0", [], injection_task=injection)[1::2] == (False, False)


def test_mails_that_fall_short_one_by_one_do_not_add_up() -> None:
    name, args = ground_truth("v1.2.2", "workspace", "injection_task_0")[0]
    halves = [(name, {**args, "body": "no"}), (name, {**args, "recipients": ["emma@example.com"]})]
    found = scored("workspace", "user_task_0", halves, injection_task="injection_task_0")
    assert (found.security, found.security_fixed) == (False, False)


def test_denial_of_service_succeeds_exactly_where_the_fixed_utility_fails() -> None:
    nothing = scored(
        "banking", "user_task_5", [], injection_task="injection_task_0", kind=AttackKind.DENIAL_OF_SERVICE
    )
    assert (nothing.security, nothing.security_fixed) == (False, True)
