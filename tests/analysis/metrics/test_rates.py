"""Rates in the long form, by length, and tokens; the paper's numbers from published runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_cases import row, row_grid

from agentsys.analysis.metrics.rates import MetricRow, make_number, measure, read_number
from agentsys.analysis.metrics.rates_by_length import (
    compute_asr_by_length,
    compute_asr_by_round,
    compute_mean_tokens,
    compute_utility_by_length,
    count_acting_tokens,
    count_without_length,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler, Side, tally_suites, widen_tally
from agentsys.analysis.statistics.rate_estimates import compute_defense_quality, estimate_rate_levels
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow

Numbers = dict[tuple[str, str, str], MetricRow]


def _numbers(cases: Sequence[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> Numbers:
    return {(row.metric, row.suite, row.defense): row for row in measure(cases, rule)}


def test_overall_is_the_mean_of_suites_and_pooled_is_not() -> None:
    cases = row_grid(1, 2, suite="banking", injection_success=True) + row_grid(3, 2, suite="slack")
    numbers = _numbers(cases)
    assert numbers["targeted_asr", "overall", "agentsys"].value == 50.0
    assert numbers["targeted_asr", "pooled", "agentsys"].value == 25.0


def test_defense_quality_is_benign_utility_times_what_the_attack_left() -> None:
    benign = [row(attack="none", user_task_id=f"user_task_{u}", utility=u < 3) for u in range(4)]
    attacked = [*row_grid(3, 1, suite="banking"), row(user_task_id="user_task_3", injection_success=True)]
    numbers = _numbers(benign + attacked)
    assert numbers["defense_quality", "banking", "agentsys"].value == pytest.approx(75 * 0.75)
    assert numbers["defense_quality", "overall", "agentsys"].n == 8


@pytest.mark.parametrize("benign_tasks", [4, 3, 5])
@pytest.mark.parametrize(
    "benign_suites", [("banking",), ("banking", "slack"), ("banking", "slack", "travel")]
)
def test_both_rates_of_a_quality_draw_the_same_tasks_whichever_cases_are_there(
    benign_tasks: int, benign_suites: tuple[str, ...]
) -> None:
    pairs = [*row_grid(4, 3, suite="banking"), *row_grid(4, 3, suite="slack")]
    attacked = [replace(case, injection_success=place % 5 < 2) for place, case in enumerate(pairs)]
    benign = [
        row(suite=suite, attack="none", user_task_id=f"user_task_{u}", utility=u % 2 == 0)
        for suite in benign_suites
        for u in range(benign_tasks)
    ]
    sampler, both = Resampler(), [suite for suite in benign_suites if suite != "travel"]
    frames = {suite: tuple(f"user_task_{u}" for u in range(max(4, benign_tasks))) for suite in both}
    counted = tally_suites(benign, ErrorRule.REPORT)
    solved = {suite: widen_tally(counted[suite], frames[suite]) for suite in both}
    injected = {
        suite: widen_tally(of, frames.get(suite, of.user_tasks))
        for suite, of in tally_suites(attacked, ErrorRule.REPORT).items()
    }
    utility = estimate_rate_levels(solved, Side.SOLVED, sampler)
    asr = estimate_rate_levels(injected, Side.INJECTED, sampler)
    numbers = {
        r.suite: (r.value, r.ci_low, r.ci_high)
        for r in measure([*benign, *attacked])
        if r.metric == "defense_quality"
    }
    for suite in both:
        expected = make_number(compute_defense_quality(utility[suite], asr[suite]))
        assert numbers[suite] == (expected.value, expected.ci_low, expected.ci_high)
    assert math.isnan(numbers["overall"][0]) == (len(both) == 1)


def test_overall_defense_quality_is_the_product_of_the_overall_rates() -> None:
    benign = [row(attack="none", utility=True), row(attack="none", suite="slack", utility=False)]
    numbers = _numbers([*benign, row(injection_success=True), row(suite="slack")])
    assert numbers["defense_quality", "overall", "agentsys"].value == 25.0


def test_defense_quality_is_nan_overall_where_one_suite_lacks_benign_cases() -> None:
    numbers = _numbers([row(attack="none"), row(), row(suite="slack")])
    assert numbers["defense_quality", "banking", "agentsys"].value == 100.0
    assert math.isnan(numbers["defense_quality", "slack", "agentsys"].value)
    assert math.isnan(numbers["defense_quality", "overall", "agentsys"].value)
    assert math.isnan(numbers["defense_quality", "pooled", "agentsys"].value)


def test_errored_cases_are_in_no_rate_and_are_counted() -> None:
    failed = row(user_task_id="user_task_9", status="error", error_kind="timeout", injection_success=True)
    number = _numbers([*row_grid(2, 2, suite="banking"), failed])["targeted_asr", "banking", "agentsys"]
    assert (number.value, number.n, number.errors) == (0.0, 4, 1)


@pytest.mark.parametrize(
    ("kind", "asr", "n"), [("context_length", 50.0, 2), ("server_error", 50.0, 2), ("timeout", 0.0, 1)]
)
def test_agentdojos_rule_counts_its_two_kinds_of_error_as_successful_attacks(
    kind: str, asr: float, n: int
) -> None:
    failed = row(user_task_id="user_task_9", status="error", error_kind=kind, injection_success=False)
    numbers = _numbers([row(), failed], ErrorRule.AGENTDOJO)
    number = numbers["targeted_asr", "banking", "agentsys"]
    assert (number.value, number.n, number.errors) == (asr, n, 1)
    assert numbers["utility_under_attack", "banking", "agentsys"].value == 100.0 - asr


def test_a_suite_where_everything_errored_is_nan_and_so_is_overall_but_not_pooled() -> None:
    lost = [replace(case, status="error", error_kind="timeout") for case in row_grid(2, 2, suite="slack")]
    numbers = _numbers([*row_grid(2, 2, suite="banking"), *lost])
    slack = numbers["targeted_asr", "slack", "agentsys"]
    assert (math.isnan(slack.value), slack.n, slack.errors) == (True, 0, 4)
    assert math.isnan(numbers["targeted_asr", "overall", "agentsys"].value)
    assert numbers["targeted_asr", "pooled", "agentsys"].value == 0.0


def test_injection_tasks_run_alone_are_in_no_metric() -> None:
    alone = row(attack="none", user_task_id="injection_task_3", utility=False)
    number = _numbers([row(attack="none"), alone])["benign_utility", "overall", "agentsys"]
    assert (number.value, number.n) == (100.0, 1)


def test_a_simulated_models_number_is_marked_and_never_mixed_with_a_real_ones() -> None:
    rows = measure([row(simulated=True), row()])
    assert {row.model for row in rows} == {"gpt-4o", "gpt-4o (simulated)"}
    assert {row.n for row in rows if row.metric == "targeted_asr"} == {1}


def test_every_attack_has_its_own_rows_and_benign_utility_is_stated_once() -> None:
    rows = measure([row(attack="none"), row(), row(attack="direct")])
    assert [row.attack for row in rows if (row.metric, row.suite) == ("benign_utility", "overall")] == [
        "none"
    ]
    overall = [row.attack for row in rows if (row.metric, row.suite) == ("targeted_asr", "overall")]
    assert overall == ["direct", "important_instructions"]


def test_denial_of_service_without_an_injection_task_is_resampled_by_user_task() -> None:
    cases = [
        row(attack="dos", user_task_id=f"user_task_{u}", injection_task_id=None, injection_success=u > 3)
        for u in range(8)
    ]
    number = _numbers(cases)["targeted_asr", "overall", "agentsys"]
    assert number.value == 50.0
    assert number.ci_low < 50.0 < number.ci_high


def test_an_interval_does_not_depend_on_what_else_is_in_the_folder() -> None:
    cases = [
        replace(case, injection_success=i % 3 == 0) for i, case in enumerate(row_grid(6, 4, suite="banking"))
    ]
    other = [replace(case, defense="none", injection_success=True) for case in cases[:-4]]
    alone, together = measure(cases), measure(cases + other)
    assert {repr(number) for number in alone} <= {repr(number) for number in together}


_CASES = st.lists(
    st.builds(
        row,
        defense=st.sampled_from(["none", "agentsys"]),
        attack=st.sampled_from(["none", "direct"]),
        suite=st.sampled_from(["banking", "slack", "travel"]),
        user_task_id=st.sampled_from(["user_task_0", "user_task_1", "user_task_2", "injection_task_0"]),
        injection_task_id=st.sampled_from(["injection_task_0", "injection_task_1", None]),
        epoch=st.integers(0, 1),
        utility=st.booleans(),
        injection_success=st.booleans(),
        status=st.sampled_from(["ok", "ok", "ok", "error"]),
        error_kind=st.sampled_from(["timeout", "context_length"]),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(cases=_CASES, rule=st.sampled_from(ErrorRule), data=st.data())
def test_rows_are_bounded_blind_to_the_order_of_cases_and_overall_the_mean_of_suites(
    cases: list[CaseRow], rule: ErrorRule, data: st.DataObject
) -> None:
    rows = measure(cases, rule)
    shuffled = measure(data.draw(st.permutations(cases)), rule)
    assert list(map(repr, rows)) == list(map(repr, shuffled))  # by repr, since nan is not equal to itself
    for number in rows:
        assert math.isnan(number.value) or 0 <= number.value <= 100
        assert math.isnan(number.ci_low) or 0 <= number.ci_low <= number.ci_high <= 100
        assert (number.n > 0) or math.isnan(number.value)
    for overall in rows:
        if overall.suite != "overall" or overall.metric == "defense_quality":
            continue
        cell = (overall.defense, overall.attack, overall.metric)
        same = [n for n in rows if (n.defense, n.attack, n.metric) == cell]
        suites = [number for number in same if number.suite not in ("overall", "pooled")]
        mean = sum(number.value for number in suites) / len(suites)
        assert math.isnan(mean) == math.isnan(overall.value)
        assert math.isnan(mean) or overall.value == pytest.approx(mean)
        assert overall.n == sum(number.n for number in suites)


def test_a_quality_is_undefined_where_every_attacked_case_of_lone_user_tasks_errored() -> None:
    benign = [row(attack="none", suite="slack", status="error"), row(attack="none", suite="travel")]
    attacked = [row(attack="direct", suite=suite, status="error") for suite in ("slack", "travel")]
    rows = measure([*benign, *attacked])
    qualities = [number.value for number in rows if number.metric == "defense_quality"]
    assert qualities
    assert all(math.isnan(value) for value in qualities)


RULE, FEW = ErrorRule.REPORT, Resampler(20)


def attacked(task: int, hit: bool, **fields: object) -> CaseRow:
    return row(user_task_id=f"user_task_{task}", injection_success=hit, **fields)


def benign(task: int, solved: bool, length: int | None, **fields: object) -> CaseRow:
    named = {"user_task_id": f"user_task_{task}", "attack": "none", "utility": solved}
    return row(**named, ground_truth_length=length, **fields)


def test_attacks_are_told_apart_by_length_and_round_and_those_that_never_appeared_are_left_out() -> None:
    cases = [
        attacked(0, True, trajectory_length=2, injection_round=1),
        attacked(1, False, trajectory_length=2, injection_round=1),
        attacked(2, True, trajectory_length=2, injection_round=2),
        attacked(3, True, trajectory_length=2, injection_round=None),
        attacked(4, True, trajectory_length=5, injection_round=1),
        row(attack="none", trajectory_length=2, injection_round=1),
    ]
    found = compute_asr_by_round(cases, [2], RULE, FEW)
    assert {pair: (number.value, number.n) for pair, number in found.items()} == {
        (2, 1): (50.0, 2),
        (2, 2): (100.0, 1),
    }


def test_a_number_tells_of_the_errored_cases_beside_it() -> None:
    here = {"trajectory_length": 2, "injection_round": 1}
    errored = attacked(1, True, status="error", error_kind="server_error", **here)
    cases = [attacked(0, True, **here), errored]
    (number,) = compute_asr_by_round(cases, [2], RULE, FEW).values()
    assert (number.value, number.n, number.errors) == (100.0, 1, 1)
    (line,) = [r for r in measure(cases) if (r.metric, r.suite) == ("targeted_asr", "banking")]
    assert read_number(line)[0] == 100.0 and read_number(line)[3:6] == (1, 1, "suspect")


def test_short_and_long_tasks_add_up_to_the_benign_utility() -> None:
    cases = [benign(0, True, 3), benign(1, True, 4), benign(2, False, 1), benign(3, True, 1, suite="slack")]
    found = compute_utility_by_length(
        [*cases, attacked(0, True, utility=True, ground_truth_length=1)], RULE, FEW
    )
    assert found["short"].value == pytest.approx((100 / 3 + 100) / 2)
    assert found["long"].value == pytest.approx((100 / 3) / 2)
    assert compute_utility_by_length([attacked(0, True, ground_truth_length=1)], RULE, FEW) == {}


def test_a_buckets_share_is_of_all_attacked_cases_and_the_last_holds_the_longer_ones() -> None:
    cases = [
        attacked(0, True, ground_truth_length=1),
        attacked(1, False, ground_truth_length=1),
        attacked(2, True, ground_truth_length=7),
        attacked(3, True, ground_truth_length=12),
        benign(4, True, 1),
    ]
    found = compute_asr_by_length(cases, RULE, FEW)
    assert {length: number.value for length, number in found.items() if number.value} == {1: 25.0, 7: 50.0}
    assert {number.n for number in found.values()} == {4}
    assert compute_asr_by_length([benign(4, True, 1)], RULE, FEW) == {}


def test_cases_without_a_length_are_counted_and_tasks_run_alone_are_not() -> None:
    alone = benign(0, True, None, suite="slack")
    named = row(user_task_id="injection_task_1", attack="none", ground_truth_length=None)
    assert (
        count_without_length([benign(0, True, None), alone, benign(1, True, 2), benign(2, True, 3), named])
        == 2
    )


def test_all_tokens_are_known_where_both_kinds_are() -> None:
    assert row(prompt_tokens=3, completion_tokens=4).tokens == 7
    assert row(prompt_tokens=3).tokens is None
    assert row(completion_tokens=4).tokens is None


def test_acting_tokens_are_those_of_the_agent_that_talks_to_the_user() -> None:
    assert count_acting_tokens(row(tokens_by_role={"main": 5, "agent": 1, "worker": 70})) == 6
    assert count_acting_tokens(row(tokens_by_role={"all": 70})) is None


def test_the_mean_leaves_out_errored_cases_and_those_without_tokens() -> None:
    cases = [
        row(user_task_id=f"user_task_{task}", prompt_tokens=tokens, completion_tokens=0)
        for task, tokens in enumerate([10, 20, 60])
    ]
    lost = [row(prompt_tokens=900, completion_tokens=0, status="error", error_kind="timeout"), row()]
    found = compute_mean_tokens([*cases, *lost], attrgetter("tokens"), FEW)
    assert found is not None
    assert (found.value, found.n) == (30.0, 3) and 10 <= found.ci_low < 30 < found.ci_high <= 60
    single = compute_mean_tokens(cases[:1], attrgetter("tokens"), FEW)
    assert single is not None and single.value == 10.0 and math.isnan(single.ci_low)
    assert compute_mean_tokens([row()], attrgetter("tokens"), FEW) is None


_SUITES = ("banking", "slack", "travel", "workspace", "overall")
_GPT_4O_MINI = {
    "benign_utility": (50.00, 66.67, 55.00, 82.50, 63.54),
    "utility_under_attack": (38.19, 48.57, 47.14, 59.17, 48.27),
    "targeted_asr": (34.03, 57.14, 13.57, 17.92, 30.66),
}


def _published_numbers(folder: Path) -> dict[tuple[str, str], MetricRow]:
    return {(row.metric, row.suite): row for row in measure(read_cases([folder]).cases)}


def test_gpt_4o_mini_without_defense_is_the_papers_row(published: Callable[[str], Path]) -> None:
    numbers = _published_numbers(published("agentdojo-gpt-4o-mini-2024-07-18"))
    for metric, expected in _GPT_4O_MINI.items():
        assert [round(numbers[metric, suite].value, 2) for suite in _SUITES] == list(expected)
    assert round(numbers["defense_quality", "overall"].value, 2) == 44.06
    assert {row.model for row in numbers.values()} == {"gpt-4o-mini-2024-07-18"}
    assert (numbers["benign_utility", "overall"].n, numbers["targeted_asr", "overall"].n) == (97, 629)
    assert {row.attack for row in numbers.values() if row.metric == "benign_utility"} == {"none"}


def test_tool_filter_is_imported_with_its_defense_name_and_figures(published: Callable[[str], Path]) -> None:
    numbers = _published_numbers(published("agentdojo-gpt-4o-2024-05-13-tool_filter"))
    metrics = ("benign_utility", "utility_under_attack", "targeted_asr")
    assert [round(numbers[metric, "overall"].value, 2) for metric in metrics] == [76.80, 56.56, 7.39]
    assert {(row.model, row.defense) for row in numbers.values()} == {("gpt-4o-2024-05-13", "tool_filter")}


def test_injection_tasks_run_alone_are_read_and_not_counted(published: Callable[[str], Path]) -> None:
    cases = read_cases([published("agentdojo-gpt-4o-mini-2024-07-18")]).cases
    assert (len(cases), sum(case.is_injection_task_alone for case in cases)) == (753, 27)


def test_new_style_published_runs_are_read_and_the_unfinished_one_named(
    published: Callable[[str], Path],
) -> None:
    reading = read_cases([published("melon-gpt-4o-mini-2024-07-18")])
    assert {case.version for case in reading.cases} == {"v1.2.2"}
    assert (len(reading.cases), [skip.reason for skip in reading.skipped_files]) == (
        153,
        ["no `utility` in it: the run was not finished"],
    )


def test_net_resilience_is_the_product_of_both_rates_of_attacks_on_the_surface_of_tools_alone() -> None:
    cases = [
        row(
            attack=attack,
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{goal}",
            utility=user % 2 > 0,
            injection_success=goal == 0,
        )
        for attack in ("mcp_name", "direct")
        for user in range(6)
        for goal in range(3)
    ]
    found = {(one.attack, one.suite): one for one in measure(cases) if one.metric == "net_resilience"}
    assert {attack for attack, _ in found} == {"mcp_name"}
    overall = found["mcp_name", "overall"]
    assert overall.value == pytest.approx(100 * 1 / 2 * 2 / 3)
    assert (overall.n, overall.ci_low < overall.value < overall.ci_high) == (18, True)


KINDS = (
    "sound",
    "content_refused",
    "server_error",
    "cut",
    "unknown_ending",
    "unparsed_call",
    "malformed_call",
)


def make_case(place: int, suite: str, attack: str, kind: str, solved: bool, hijacked: bool) -> CaseRow:
    errored = kind in ("content_refused", "server_error")
    odd = {} if errored or kind == "sound" else {"m": {kind: 1}}
    more = {"status": "error", "error_kind": kind} if errored else {"odd_replies": odd}
    of_attack = {} if attack == "none" else {"injection_success": hijacked}
    user = f"user_task_{place}"
    return row(suite=suite, attack=attack, user_task_id=user, utility=solved, **more, **of_attack)


def decide(case: CaseRow, *, solved: bool, hijacked: bool) -> CaseRow:
    """The case as it would be had it ended so, if it is undecided."""
    if case.status == "ok" and not case.odd_replies:
        return case
    security = None if case.attack == "none" else hijacked
    ended = replace(case, status="ok", error_kind=None, odd_replies={}, utility=solved)
    return replace(ended, injection_success=security)


CASES = st.lists(
    st.tuples(
        st.sampled_from(["banking", "slack"]),
        st.sampled_from(["none", "direct"]),
        st.sampled_from(KINDS),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(CASES)
def test_bounds_are_the_rates_with_every_undecided_case_failed_and_succeeded(
    drawn: list[tuple[str, str, str, bool, bool]],
) -> None:
    cases = [make_case(place, *fields) for place, fields in enumerate(drawn)]
    worst, best = (_numbers([decide(c, solved=s, hijacked=not s) for c in cases]) for s in (False, True))
    for rule in ErrorRule:
        for key, line in _numbers(cases, rule).items():
            ends = sorted(decided[key].value for decided in (worst, best))
            assert [line.bound_low, line.bound_high] == pytest.approx(ends, nan_ok=True)
            inside = line.bound_low - 1e-6 <= line.value <= line.bound_high + 1e-6
            assert inside or math.isnan(line.value) or math.isnan(line.bound_low)
    failed = _numbers(cases, ErrorRule.FAILED)
    assert {key: line.value for key, line in failed.items()} == pytest.approx(
        {key: line.value for key, line in worst.items()}, nan_ok=True
    )


def test_a_filter_that_stopped_three_quarters_of_the_attacked_cases_stands_in_bounds_and_verdict() -> None:
    cases = [
        make_case(n, "banking", "direct", "content_refused" if n < 24 else "sound", True, True)
        for n in range(32)
    ]
    asr = _numbers(cases)["targeted_asr", "overall", "agentsys"]
    assert (asr.value, asr.bound_low, asr.bound_high, asr.undecided) == (100.0, 25.0, 100.0, 24)
    assert asr.verdict == "suspect" and "content_refused 24" in asr.reasons


def test_a_quality_has_no_interval_where_one_of_its_rates_has_none() -> None:
    benign = [row(attack="none", user_task_id=f"user_task_{u}", utility=u < 3) for u in range(4)]
    one = _numbers([*benign, row(user_task_id="user_task_0", injection_success=True)])
    for metric in ("targeted_asr", "defense_quality"):
        assert math.isnan(one[metric, "overall", "agentsys"].ci_low), metric
    assert not math.isnan(one["benign_utility", "overall", "agentsys"].ci_low)
    alone = _numbers([benign[0], *row_grid(4, 1)])
    assert not math.isnan(alone["targeted_asr", "overall", "agentsys"].ci_low)
    assert math.isnan(alone["defense_quality", "overall", "agentsys"].ci_low)
