"""The static audit of AgentDojo finds the flaws that are known of it, each as an exact number."""

from __future__ import annotations

from functools import cache, partial
from typing import Annotated, Any

import pytest
from agentdojo.functions_runtime import Depends, FunctionCall, TaskEnvironment, make_function
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.analysis.metrics.task_tags import load_limits_of
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys_plugins.audit.static.static_audit import StaticAudit, SuiteAudit, audit_benchmark
from agentsys_plugins.audit.static.static_document import format_task_numbers, write_static_sentences
from agentsys_plugins.audit.static.task_checks import find_tool_traps

VERSIONS = ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2")
WHOLE = pytest.mark.slow


@cache
def audit(version: str, *suites: str) -> StaticAudit:
    return audit_benchmark(partial(AgentDojo, version, suites or None), workers=1 if suites else 2)


def one(suite: str, version: str = "v1.2.2") -> SuiteAudit:
    (found,) = audit(version, suite).suites
    return found


def candidates(suite: SuiteAudit) -> list[str]:
    return [f"{task.removeprefix('user_task_')} {m.kind}" for task, m in suite.candidates]


@pytest.mark.parametrize(("version", "tasks"), [("v1.2.2", "5, 6, 8-10"), ("v1", "5, 8-10")])
def test_banking_tasks_that_an_agent_solves_by_doing_nothing(version: str, tasks: str) -> None:
    assert format_task_numbers(one("banking", version).noop) == tasks


def test_banking_and_slack_tasks_all_pass_on_their_own_ground_truth() -> None:
    assert (one("banking").own_passes, len(one("banking").user_tasks)) == (16, 16)
    assert (one("slack").own_passes, len(one("slack").user_tasks)) == (21, 21)
    assert all(row.own_ground_truth for row in one("banking").injection_tasks)
    assert all(row.own_ground_truth for row in one("slack").injection_tasks)


def test_pairs_of_banking_and_slack_whose_user_task_outlives_the_attack() -> None:
    assert (one("banking").compatible, one("banking").pairs) == (126, 144)
    assert (one("slack").compatible, one("slack").pairs) == (103, 105)


@WHOLE
def test_travel_attacks_that_may_not_be_repeated_and_the_one_without_a_ground_truth() -> None:
    assert format_task_numbers(one("travel").repeat_unsafe) == "1, 3, 5"
    assert (one("travel").compatible, one("travel").pairs) == (8, 120)
    assert format_task_numbers(one("travel").without_ground_truth) == "6"
    assert candidates(one("travel")) == ["3 recipient"]


def test_banking_and_slack_attacks_may_be_repeated_and_their_checks_are_stable() -> None:
    for suite in (one("banking"), one("slack")):
        assert suite.repeat_unsafe == ()
        assert suite.unstable_checks == ()
        assert suite.breaking_reads == {}


def test_wrong_values_that_banking_and_slack_do_not_notice() -> None:
    assert candidates(one("banking")) == [
        "5 recipient",
        "5 amount",
        "6 recipient",
        "6 amount",
        "6 flag",
        "11 recipient",
    ]
    assert candidates(one("slack")) == ["2 e-mail", "16 e-mail", "17 e-mail", "20 e-mail"]


def test_a_call_that_can_be_left_out_is_found() -> None:
    dropped = {
        row.task: [m.function for m in row.surviving_mutations if m.kind == "dropped"]
        for row in one("banking").user_tasks
    }
    assert {task for task, functions in dropped.items() if functions} == {"user_task_5", "user_task_6"}


def test_a_bill_is_overwritten_and_a_channel_name_is_an_identifier() -> None:
    assert format_task_numbers(one("banking").destroyed) == "0"
    assert format_task_numbers(one("slack").destroyed) == "7, 9, 10, 12, 19"
    named = [row.task for row in one("slack").user_tasks if row.identifier_vector]
    assert format_task_numbers(named) == "7, 9, 10, 12-14, 19"
    assert not [row for row in one("banking").user_tasks if row.identifier_vector]


def limits_are_those_of(found: StaticAudit) -> None:
    limits = load_limits_of("agentdojo", found.version)
    assert limits is not None
    for suite in found.suites:
        assert limits.passed_by_doing_nothing.get(suite.suite, frozenset()) == set(suite.noop)
        assert limits.destroyed_by_injection.get(suite.suite, frozenset()) == set(suite.destroyed)


@pytest.mark.parametrize("suite", ["banking", "slack"])
def test_limits_printed_under_tables_are_those_of_the_audit(suite: str) -> None:
    limits_are_those_of(audit("v1.2.2", suite))


@WHOLE
@pytest.mark.parametrize("version", VERSIONS)
def test_limits_of_every_version_are_those_of_the_audit(version: str) -> None:
    limits_are_those_of(audit(version))


@WHOLE
def test_workspace_as_a_whole() -> None:
    suites = {suite.suite: suite for suite in audit("v1.2.2").suites}
    workspace = suites["workspace"]
    assert workspace.noop == ()
    assert sum(suite.own_passes for suite in suites.values()) == 97
    assert (workspace.compatible, workspace.pairs) == (6, 240)
    assert workspace.breaking_reads == {"get_unread_emails": 37}
    assert format_task_numbers(workspace.repeat_unsafe) == "0, 2-4"
    assert format_task_numbers(workspace.without_ground_truth) == "6-13"
    assert format_task_numbers(workspace.unstable_checks) == "6, 8, 9"
    assert all(task.startswith("injection") for task in workspace.unstable_checks)


@WHOLE
def test_twenty_two_wrong_values_in_seventeen_tasks_go_unnoticed() -> None:
    found = [(s.suite, task, m) for s in audit("v1.2.2").suites for task, m in s.candidates]
    assert len(found) == 22
    assert len({(suite, task) for suite, task, _ in found}) == 17
    assert all(mutation.reviewed != "unread" for _, _, mutation in found)


@WHOLE
def test_no_attack_check_accepts_an_idle_agent_or_an_honest_one() -> None:
    for suite in audit("v1.2.2").suites:
        assert not [row for row in suite.injection_tasks if row.noop_security]
        assert not [row for row in suite.user_tasks if row.security_on_user_ground_truth]


@WHOLE
def test_the_sentence_for_a_paper() -> None:
    first = write_static_sentences(audit("v1.2.2"))[0]
    assert "solves 5 of 97 user tasks (banking 5, 6, 8-10): a benign utility of 7.8%" in first


@WHOLE
def test_one_process_and_two_find_the_same() -> None:
    build = partial(AgentDojo, "v1.2.2", ["travel", "banking", "slack"])
    assert audit_benchmark(build, workers=1) == audit_benchmark(build, workers=2)


def test_tools_that_do_what_nobody_expects_are_named() -> None:
    assert one("banking").tool_traps == ("get_most_recent_transactions gives everything for n=0",)
    assert one("slack").tool_traps == ()
    said = write_static_sentences(audit("v1.2.2", "banking"))
    assert any(
        "Of banking's tools, get_most_recent_transactions gives everything for n=0" in line for line in said
    )


class Purse(TaskEnvironment):  # type: ignore[misc]
    left: int = 9
    lines: tuple[str, ...] = ("a", "b")


def pay(purse: Annotated[Purse, Depends(lambda env: env)], to: str, sum: int) -> str:
    """Pay.

    :param to: To whom.
    :param sum: How much.
    """
    purse.left -= sum
    if to != "Ann":
        raise ValueError(f"{to} is unknown")
    return "paid"


def pay_carefully(purse: Annotated[Purse, Depends(lambda env: env)], to: str, sum: int) -> str:
    """Pay.

    :param to: To whom.
    :param sum: How much.
    """
    if to != "Ann":
        raise ValueError(f"{to} is unknown")
    purse.left -= sum
    return "paid"


def list_first(purse: Annotated[Purse, Depends(lambda env: env)], n: int) -> list[str]:
    """List.

    :param n: How many.
    """
    return list(purse.lines[:n])


def test_a_tool_of_ones_own_that_fails_after_its_change_is_named() -> None:
    suite: Any = TaskSuite("purses", Purse, [make_function(one) for one in (pay, pay_carefully, list_first)])
    suite.load_and_inject_default_environment = lambda injections: Purse()
    calls = [FunctionCall(function=name, args={"to": "Ann", "sum": 2}) for name in ("pay", "pay_carefully")]
    assert find_tool_traps(suite, calls) == ("pay fails on an unfit to and has changed the environment",)
