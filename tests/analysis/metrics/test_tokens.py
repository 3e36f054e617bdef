"""Tokens per case: whose, of which cases, and between which limits."""

from __future__ import annotations

import math
from operator import attrgetter

from stored_cases import row

from agentsys.analysis.metrics.tokens import acting_tokens, mean_tokens
from agentsys.analysis.statistics.bootstrap import Resampler

FEW = Resampler(50)


def test_all_tokens_are_known_where_both_kinds_are() -> None:
    assert row(prompt_tokens=3, completion_tokens=4).tokens == 7
    assert row(prompt_tokens=3).tokens is None
    assert row(completion_tokens=4).tokens is None


def test_acting_tokens_are_those_of_the_agent_that_talks_to_the_user() -> None:
    assert acting_tokens(row(tokens_by_role={"main": 5, "agent": 1, "worker": 70})) == 6
    assert acting_tokens(row(tokens_by_role={"all": 70})) is None


def test_the_mean_leaves_out_errored_cases_and_those_without_tokens() -> None:
    cases = [
        row(user_task_id=f"user_task_{task}", prompt_tokens=tokens, completion_tokens=0)
        for task, tokens in enumerate([10, 20, 60])
    ]
    lost = [row(prompt_tokens=900, completion_tokens=0, status="error", error_kind="timeout"), row()]
    found = mean_tokens([*cases, *lost], attrgetter("tokens"), FEW)
    assert found is not None
    assert (found.value, found.n) == (30.0, 3) and 10 <= found.ci_low < 30 < found.ci_high <= 60


def test_one_user_task_has_no_interval_and_no_case_no_mean() -> None:
    single = mean_tokens([row(prompt_tokens=1, completion_tokens=1)], attrgetter("tokens"), FEW)
    assert single is not None and single.value == 2.0 and math.isnan(single.ci_low)
    assert mean_tokens([row()], attrgetter("tokens"), FEW) is None
