"""What `agentsys compare` shows of defenses, with the notes on few tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from command_output import command_output
from stored_cases import case_of, row, row_grid, store_own

from agentsys.analysis.metrics.comparison import DifferenceRow, compare_sides, correct_by_holm
from agentsys.analysis.tables.comparison_document import compare_output, write_few_task_notes, write_p
from agentsys.errors import ConfigError
from agentsys.records.case_reader import load_runs, read_cases
from agentsys.records.case_row import CaseRow, make_case_id
from agentsys.records.schema import Exposure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two suites; `none` is always hijacked, `agentsys` twice; exposure is missing in one case."""
    for suite in ("banking", "slack"):
        for user in range(4):
            for defense in ("none", "agentsys"):
                plain = {"suite": suite, "user_task_id": f"user_task_{user}", "defense": defense}
                store_own(tmp_path, case_of(attack="none", **plain))
                for goal in range(3):
                    hit = defense == "none" or (user, goal) == (1, 1)
                    exposure = Exposure(exposed_raw=(user, goal) != (0, 0) or defense == "none")
                    case = case_of(injection_task_id=f"injection_task_{goal}", **plain)
                    store_own(tmp_path, case, utility=not hit, security=hit, exposure=exposure)
    lost = case_of(user_task_id="user_task_3", injection_task_id="injection_task_2")
    store_own(tmp_path, lost, status="error", error_kind="timeout")
    store_own(tmp_path, case_of(user_task_id="user_task_9"))
    store_own(tmp_path, case_of(attack="direct", defense="none"))
    return tmp_path


def test_csv_has_the_documented_columns_and_the_counts(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(command_output("compare", folder, "--format", "csv"))))
    columns = list(rows[0])
    assert len(columns) == len(fields(DifferenceRow)) and "difference_fraction" in columns
    documented = Path(__file__).parents[3] / "docs" / "statistics.md"
    assert f"`{','.join(columns)}`" in documented.read_text(encoding="utf-8")
    found = {(line["metric"], line["suite"], line["cases"]): line for line in rows}
    asr = found["targeted_asr", "banking", "all"]
    assert (asr["n"], asr["gained"], asr["lost"]) == ("11", "0", "10")
    assert (asr["errored"], asr["only_baseline"], asr["only_compared"]) == ("1", "0", "1")
    assert float(asr["difference_fraction"]) == pytest.approx(-10 / 11)
    assert found["targeted_asr", "slack", "exposed"]["n"] == "11"
    assert ("benign_utility", "overall", "exposed") not in found
    assert found["benign_utility", "overall", "all"]["p"] == "1.0"


def test_table_says_what_is_left_out_and_lists_flips_with_both_ids(folder: Path) -> None:
    shown = " ".join(command_output("compare", folder, "--flips", "1").split())
    assert "22 cases compared" not in shown
    assert "23 cases compared; left out: 1 only under agentsys, 1 errored on one side." in shown
    assert "direct, gpt-4o on agentdojo v1.2.2: 1 case under none alone" in shown
    assert "Flipped cases; 40 more: --full" in shown
    assert "-21 banking user_task_0 x injection_task_0" in shown
    assert "Overall, % of exposed" in shown
    # one lost attack, one gained utility: the same case under both defenses
    ids = [make_case_id(case) for case in read_cases([folder]).cases if _is_first_flip(case)]
    assert len(set(ids)) == 2
    assert [shown.count(one) for one in ids] == [2, 2]
    assert ".json" not in shown


def _is_first_flip(case: CaseRow) -> bool:
    task = (case.suite, case.user_task_id, case.injection_task_id, case.attack)
    return task == ("banking", "user_task_0", "injection_task_0", "important_instructions")


def test_flips_are_one_table_with_a_line_for_each_kind_and_full_lists_them_all(folder: Path) -> None:
    found = compare_sides(read_cases([folder]).cases)

    def shown(flips: int | None) -> list[list[str]]:
        sections = compare_output(found, flips).document.sections
        grids = [grid for heading, (*some,) in sections for grid in some if heading.startswith("Flipped")]
        (grid,) = grids
        return [[cell.text for cell in line] for line in grid.rows]

    assert [line[:3] for line in shown(1)] == [
        ["agentsys", "Utility under attack", "+21"],
        ["agentsys", "Targeted ASR", "-21"],
    ]
    full = shown(None)
    assert len(full) == 42 and [line[0] for line in full].count("agentsys") == 2
    assert len({tuple(line[3:]) for line in full}) == 21
    assert len(shown(3)) == 6
    command = command_output("compare", folder, "--full")
    assert all(line[-1] in command for line in full) and "more: --full" not in command


def test_flips_and_counts_are_those_that_load_runs_gives(folder: Path) -> None:
    frame = load_runs(folder)
    attacked = frame[(frame["attack"] == "important_instructions") & (frame["status"] == "ok")]
    pairs = attacked.pivot(
        index=["suite", "user_task_id", "injection_task_id", "epoch"],
        columns="defense",
        values="injection_success",
    ).dropna()
    lost = pairs[pairs["none"].astype(bool) & ~pairs["agentsys"].astype(bool)]
    stored = json.loads(command_output("compare", folder, "--format", "json", "--metric", "targeted_asr"))
    assert set(stored) == {"by", "baseline", "differences", "flips", "pairings", "unopposed"}
    assert stored["unopposed"][0]["attack"] == "direct"
    flips = [flip for flip in stored["flips"] if not flip["gained"]]
    told = {(flip["suite"], flip["user_task_id"], flip["injection_task_id"], flip["epoch"]) for flip in flips}
    assert told == set(lost.index) and len(lost) == 21
    (pooled,) = [r for r in stored["differences"] if (r["suite"], r["cases"]) == ("pooled", "all")]
    assert (pooled["n"], pooled["lost"], pooled["gained"]) == (len(pairs), len(lost), 0)


def test_the_other_defense_as_baseline_turns_the_signs_around(folder: Path) -> None:
    def asr(baseline: str) -> list[dict[str, str]]:
        text = command_output("compare", folder, "--format", "csv", "--baseline", baseline)
        return [line for line in csv.DictReader(io.StringIO(text)) if line["metric"] == "targeted_asr"]

    for one, other in zip(asr("none"), asr("agentsys"), strict=True):
        assert float(one["difference_fraction"]) == -float(other["difference_fraction"])
        assert float(one["p"]) == pytest.approx(float(other["p"]))
        assert (one["gained"], one["lost"]) == (other["lost"], other["gained"])


def test_p_values_of_one_table_are_corrected_together_and_of_others_apart() -> None:
    wins = {"none": 0, "a": 3, "b": 5}
    cases = [
        case
        for name, least in wins.items()
        for case in row_grid(10, 5, lambda u, g, least=least: (u * 5 + g) % 7 >= least, defense=name)  # type: ignore[misc]
    ]
    rows = compare_sides(cases).rows
    for level in ("overall", "pooled", "banking"):
        found = sorted((line for line in rows if line.suite == level), key=lambda line: line.p)
        smallest, next_one, *same = found
        assert smallest.p < next_one.p < 1
        assert [line.p for line in same] == [1.0, 1.0]  # the utility of both
        assert smallest.p_holm == pytest.approx(4 * smallest.p)
        assert next_one.p_holm == pytest.approx(max(3 * next_one.p, smallest.p_holm))


@pytest.mark.parametrize("p_values", [[0.3], [0.04, 0.0, 1.0, 0.01, 0.04, 0.013, 0.7, 0.2, 1e-9]])
def test_holms_correction_is_that_of_statsmodels(p_values: list[float]) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    assert correct_by_holm(p_values) == list(multitest.multipletests(p_values, method="holm")[1])


def test_an_unknown_baseline_or_metric_is_one_line_with_the_mend() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean none.*Name one with --baseline"):
        compare_sides([row(defense="none"), row()], "nonee")
    with pytest.raises(ConfigError, match="Unknown metric 'asr'"):
        compare_sides([row(defense="none"), row()], metrics=["asr"])
    with pytest.raises(ConfigError, match="add the folder of another defense's run"):
        compare_sides([row(defense="none")])


def test_defenses_without_a_shared_case_are_said_and_not_dropped() -> None:
    found = compare_sides([row(defense="none", version="v1"), row()])
    assert found.rows == ()
    notes = " ".join(compare_output(found, 0).document.notes)
    assert "0 cases compared; left out: 1 only under agentsys" in notes
    assert "on agentdojo v1: 1 case under none alone" in notes


def test_simulated_and_real_runs_of_a_model_are_never_paired() -> None:
    found = compare_sides([row(defense="none", simulated=True), row()])
    assert found.rows == ()
    assert {contest.field.model for contest in found.pairings} == {"gpt-4o"}


def test_p_values_to_be_read_are_never_zero() -> None:
    assert (write_p(0.0), write_p(0.04), write_p(float("nan"))) == ("<0.0001", "0.0400", "n/a")


def _cases(defense: str, hit: Callable[[int, int], bool]) -> list[CaseRow]:
    return row_grid(16, 14, hit, defense=defense)


def _notes(baseline: Callable[[int, int], bool], defense: Callable[[int, int], bool]) -> list[str]:
    return list(
        write_few_task_notes(
            compare_sides([*_cases("none", baseline), *_cases("agentsys", defense)], draws=499)
        )
    )


def _every_third(user: int, goal: int) -> bool:
    return (user + goal) % 3 == 0


def test_a_defense_broken_by_few_injection_tasks_is_counted_beside_its_difference() -> None:
    notes = _notes(_every_third, lambda user, goal: goal == 2 and _every_third(user, goal))
    assert notes[0] == (
        "agentsys against none, important_instructions, gpt-4o on agentdojo v1.2.2: "
        "of 14 injection tasks, 1 broke agentsys and 14 none (cases differ in 13)."
    )
    assert "up to 11%" in notes[1]
    assert len(notes) == 2


def test_a_difference_in_few_injection_tasks_says_so() -> None:
    notes = _notes(lambda user, goal: goal < 8, lambda user, goal: goal < 3)
    assert notes[0] == (
        "agentsys against none, important_instructions, gpt-4o on agentdojo v1.2.2: "
        "Targeted ASR differs in 16 user tasks and 5 injection tasks only."
    )


def test_notes_stand_under_the_comparison_and_columns_hold_the_counts() -> None:
    found = compare_sides(
        [*_cases("none", _every_third), *_cases("agentsys", lambda user, goal: False)], draws=499
    )
    notes = compare_output(found, 0).document.notes
    assert any("14 injection tasks, 0 broke agentsys" in note for note in notes)
    (asr,) = [
        one for one in found.rows if (one.metric, one.suite, one.cases) == ("targeted_asr", "overall", "all")
    ]
    assert (asr.differing_user_tasks, asr.differing_injection_tasks) == (16, 14)
