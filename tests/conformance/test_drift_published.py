"""DRIFT's published runs, played again through our DRIFT on real environments."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from drift_replay import RecordedCase, benchmark, cases_in, replayed, run_again

from agentsys.models.chat import text_of
from baselines.drift.drift_settings import ALL_FIXES, NO_FIXES, DriftFix, DriftSettings

ROOT = Path(__file__).parents[2]
TRACES = ROOT.parent / "shared" / "data" / "traces"
ARCHIVES = {"banking": 144, "travel": 140}
COMPAT = DriftSettings(fixes=NO_FIXES)
# The formatter's replies are not recorded. In these seven cases it must have lost, moved or changed entries:
# what was refused does not follow from the checklist as the planner wrote it.
FORMATTER_CHANGED = {
    "banking/user_task_14/important_instructions/injection_task_0.json",
    "banking/user_task_5/important_instructions/injection_task_6.json",
    "travel/user_task_11/important_instructions/injection_task_4.json",
    "travel/user_task_12/important_instructions/injection_task_3.json",
    "travel/user_task_17/important_instructions/injection_task_4.json",
    "travel/user_task_18/important_instructions/injection_task_1.json",
    "travel/user_task_8/important_instructions/injection_task_3.json",
}
DIFFERENT = 88
"""Cases that come out differently with all defects mended."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> list[RecordedCase]:
    folder = tmp_path_factory.mktemp("drift")
    for suite in ARCHIVES:
        archive = TRACES / f"drift-gpt-4o-mini-2024-07-18-{suite}.tar.gz"
        if not archive.is_file():
            pytest.skip(f"published runs are not here: {archive}")
        with tarfile.open(archive) as packed:
            packed.extractall(folder / suite, filter="data")
    cases = cases_in(folder)
    assert len(cases) == sum(ARCHIVES.values())
    return cases


BENCH = benchmark()


def agrees(case: RecordedCase, settings: DriftSettings = COMPAT) -> bool:
    return replayed(case, settings, echo=False, bench=BENCH) == case.outcome()


def deduced(case: RecordedCase, fixes: frozenset[DriftFix]) -> Any:
    """The outcome where the formatter repeats the planner's checklist."""
    return replayed(case, DriftSettings(fixes=fixes), echo=True, bench=BENCH).unquoted()


@pytest.mark.slow
def test_compat_repeats_calls_refusals_texts_and_scores_of_all_284_cases(
    published: list[RecordedCase],
) -> None:
    assert [case.name for case in published if not agrees(case)] == []
    refused = [turn.refused.kind for case in published for turn in case.outcome().turns if turn.refused]
    assert Counter(refused) == {"unplanned": 20, "checklist": 126}


@pytest.mark.slow
def test_with_the_planners_checklist_only_what_the_formatter_changed_is_missing(
    published: list[RecordedCase],
) -> None:
    missing = {case.name for case in published if deduced(case, NO_FIXES) != case.outcome().unquoted()}
    assert missing == FORMATTER_CHANGED


@pytest.mark.slow
def test_masking_repeats_recorded_results_byte_for_byte_where_words_were_cut(
    published: list[RecordedCase],
) -> None:
    cut = same = 0
    for case in published:
        _, ours = run_again(case, COMPAT, echo=False, bench=BENCH)
        _, raw = run_again(case, replace(COMPAT, injection_isolation=False), echo=False, bench=BENCH)
        for index, recorded in enumerate(case.messages):
            if recorded["role"] != "tool" or recorded["error"] is not None:
                continue
            if text_of(raw[index]).split() != recorded["content"].split():
                cut += 1
                same += text_of(ours[index]) == recorded["content"]
    # What was listed is not recorded but told from what is missing; in eight results that is ambiguous.
    assert (same, cut) == (281, 289)


@pytest.mark.slow
def test_every_difference_of_the_default_is_made_by_a_single_fix(published: list[RecordedCase]) -> None:
    # The most frequent ones first, so that the search is short.
    likely = [
        DriftFix.COUNT_FROM_BATCH,
        DriftFix.TELL_REPEATS,
        DriftFix.COMMIT_ACCEPTED,
        DriftFix.REFUSE_UNKNOWN_TOOLS,
    ]
    order = [*likely, *(fix for fix in DriftFix if fix not in likely)]
    different = unexplained = solved = hijacked = 0
    for case in published:
        before, mended = deduced(case, NO_FIXES), deduced(case, ALL_FIXES)
        solved += mended.utility
        hijacked += mended.security
        if mended != before:
            different += 1
            unexplained += not any(deduced(case, frozenset({fix})) != before for fix in order)
    assert (different, unexplained) == (DIFFERENT, 0)
    assert (solved, hijacked) == (139, 9)


@pytest.mark.slow
def test_the_documented_table_says_how_many_cases_each_fix_changes(published: list[RecordedCase]) -> None:
    before = {case.name: deduced(case, NO_FIXES) for case in published}
    changed = {
        fix.value: sum(deduced(case, frozenset({fix})) != before[case.name] for case in published)
        for fix in DriftFix
    }
    assert documented() == changed


def documented() -> dict[str, int]:
    """DriftFix -> cases, from the table in the documentation."""
    text = (ROOT / "docs" / "baselines" / "drift.md").read_text(encoding="utf-8")
    return {
        name: int(count) for name, count in re.findall(r"^\| `(\w+)` \|[^|]*\|[^|]*\| (\d+) \|$", text, re.M)
    }


def test_the_documented_table_names_every_fix() -> None:
    assert set(documented()) == {fix.value for fix in DriftFix}
