"""Official and fixed scores of recorded runs side by side, in the document, for programs and on disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.benchmark import load_task_results
from stored_cases import PAY_ATTACKER, READ_BILL, attacked, drift, in_blocks, published, stored, turns

from agentsys.analysis.tables.result_frame import make_variants
from agentsys.analysis.tables.table_document import OutputFormat, write_markdown_document
from agentsys.benchmarks.fixes.fix_catalog import RESCORING
from agentsys.cli.cli_output import render_output as text_of
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases
from agentsys_plugins.audit.rescoring.rescore import RescoringResult, rescore_records
from agentsys_plugins.audit.rescoring.rescoring_document import (
    ALL_SUITES,
    build_rescoring_document,
    count_fixed_rows,
    write_fixed_notes,
)
from agentsys_plugins.audit.rescoring.rescoring_export import build_rescoring_output, write_rescored

UNPAID = published(user_task_id="user_task_5", messages=turns([]))
"""Banking 5 passes without any payment, officially; a fix wants a new one."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Benign: one turned by a fix, one not; attacked: likewise, and one in another suite; one task alone."""
    folder = tmp_path / "runs"
    stored(folder, UNPAID)
    stored(folder, published())
    stored(folder, attacked(user_task_id="user_task_5", utility=True, injections={}))
    stored(folder, attacked())
    unharmed = {"messages": turns([]), "security": False, "injections": {}}
    stored(folder, attacked(suite_name="slack", injection_task_id="injection_task_1", **unharmed))  # type: ignore[arg-type]
    stored(folder, published(user_task_id="injection_task_0", messages=turns([READ_BILL, PAY_ATTACKER])))
    return folder


def test_both_scores_are_counted_per_attack_and_suite_with_the_fix_that_turned_them(runs: Path) -> None:
    rows = {(row.attack, row.suite): row for row in count_fixed_rows(rescore_records([runs], "v1.2.2").cases)}
    assert list(rows) == [
        ("none", "banking"),
        ("none", ALL_SUITES),
        ("direct", "banking"),
        ("direct", "slack"),
        ("direct", ALL_SUITES),
    ]
    benign, whole = rows["none", "banking"], rows["direct", ALL_SUITES]
    assert (benign.cases, benign.solved, benign.solved_fixed, benign.succeeded) == (2, 2, 1, 0)
    assert (whole.cases, whole.solved, whole.solved_fixed) == (3, 1, 0)
    assert (whole.succeeded, whole.succeeded_fixed) == (2, 2)
    assert benign.changed_by == dict.fromkeys(RESCORING, 0) | {"utility_new_effects": 1}


def test_official_scores_do_not_depend_on_the_fixes(runs: Path) -> None:
    every, one = rescore_records([runs], "v1.2.2"), rescore_records([runs], "v1.2.2", ["any_match"])
    assert [case.scores for case in every.cases] == [case.scores for case in one.cases]
    assert one.fixes == ("any_match",)
    assert not any(case.fixed.changed_by for case in one.cases if case.fixed)


def test_a_fix_that_changes_what_models_read_is_refused_and_an_unknown_one_named(runs: Path) -> None:
    with pytest.raises(ConfigError, match=r"changes what models read.*utility_arguments"):
        rescore_records([runs], "v1.2.2", ["append_injection"])
    with pytest.raises(ConfigError, match="Did you mean any_match"):
        rescore_records([runs], "v1.2.2", ["any_mach"])
    assert rescore_records([runs], "v1.2.2", ["any_match", "all"]).fixes == RESCORING


def test_in_a_denial_of_service_the_fixed_success_follows_the_fixed_utility(tmp_path: Path) -> None:
    denial = attacked(user_task_id="user_task_5", attack_type="dos", injections={}, messages=turns([]))
    stored(tmp_path, denial)
    (case,) = rescore_records([tmp_path], "v1.2.2").cases
    assert case.scores == (True, False)
    assert case.fixed is not None and (case.fixed.utility, case.fixed.security) == (False, True)


def test_programs_get_the_fixed_scores_of_every_record(runs: Path) -> None:
    found = rescore_records([runs], "v1.2.2")
    lines = list(
        csv.DictReader(io.StringIO(text_of(build_rescoring_output(found), OutputFormat.CSV).decode()))
    )
    shown = [
        (line["user_task_id"], line["utility_fixed"], line["security_fixed"], line["changed_by"])
        for line in lines
        if line["suite"] == "banking" and not line["user_task_id"].startswith("user_task_0")
    ]
    assert sorted(shown) == [
        ("injection_task_0", "", "", ""),
        ("user_task_5", "False", "", "utility_new_effects"),
        ("user_task_5", "False", "True", "utility_new_effects"),
    ]
    fixed = json.loads(text_of(build_rescoring_output(found), OutputFormat.JSON))["fixed"]
    assert fixed["fixes"] == list(RESCORING) and len(fixed["rows"]) == 5
    assert [case["changed_by"] for case in fixed["changed"]] == [["utility_new_effects"]] * 2


def written(runs: Path) -> Path:
    out = runs.parent / "out"
    write_rescored(rescore_records([runs], "v1.2.2").cases, out)
    return out


def test_written_records_carry_both_scores_and_results_show_them(runs: Path) -> None:
    cases = read_cases([written(runs)]).cases
    (unpaid,) = [c for c in cases if c.user_task_id == "user_task_5" and c.attack == "none"]
    assert unpaid.utility is True
    assert unpaid.measured == {
        "fixes": list(RESCORING),
        "repeats": 0,
        "utility_fixed": False,
        "security_fixed": False,
        "changed_by": ["utility_new_effects"],
    }
    found = make_variants(cases, fixed=True)
    assert [len(variant.cases) for variant in found.listed] == [6, 5]
    assert not any("left out" in note for note in found.notes)  # a task run alone is in no line anyway


def test_drifts_records_carry_them_too(tmp_path: Path) -> None:
    stored(tmp_path / "runs", drift(user_task_id="user_task_5", conversations=turns([])))
    (case,) = read_cases([written(tmp_path / "runs")]).cases
    assert (case.defense, case.utility, case.measured["utility_fixed"]) == ("drift", True, False)


@pytest.mark.parametrize(
    "facts", [[], "x", {"utility_fixed": True}, {"fixes": [], "utility_fixed": 1, "security_fixed": 0}]
)
def test_facts_of_another_form_are_no_scores_and_no_obstacle(runs: Path, facts: Any) -> None:
    out = written(runs)
    (path,) = out.glob("some-model/banking/user_task_5/none/none.json")
    content = orjson.loads(path.read_bytes())
    content["rescored"]["measured"] = facts
    path.write_bytes(orjson.dumps(content))
    (case,) = read_cases([path]).cases
    assert case.measured == {} and case.utility is True


def test_our_own_runs_get_the_same_facts_again(run_cases: Callable[..., Any], tmp_path: Path) -> None:
    overrides = ["model=simulated", "attack=important_instructions", "benchmark.suites=[workspace,banking]"]
    run_cases([*overrides, "limit_per_suite=6"])
    before = {case.identity: case.measured for case in read_cases([tmp_path / "runs"]).cases}
    after = {case.identity: case.measured for case in read_cases([written(tmp_path / "runs")]).cases}
    assert len(after) == 12 and [*after] == [*before]
    for key, facts in after.items():
        assert {**facts, "fixes": 0} == {**before[key], "fixes": 0}
    assert all("repeats" in facts for facts in after.values())


def test_our_own_older_records_get_no_count_of_repeats_over_several_attempts(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    run_cases(["model=simulated", "attack=direct", "benchmark.suites=[banking]", "limit_per_suite=1"])
    (source,) = read_cases([tmp_path / "runs"]).cases
    content = orjson.loads(Path(source.source).read_bytes())
    content["agentsys"]["measured"] = {}
    Path(source.source).write_bytes(orjson.dumps(content))
    (after,) = read_cases([written(tmp_path / "runs")]).cases
    assert "repeats" not in after.measured and "utility_fixed" in after.measured


def test_calls_made_again_are_counted_from_the_execution(tmp_path: Path) -> None:
    failing = {"function": "send_money", "args": {"amount": 1.0}, "id": "f"}
    paid = [PAY_ATTACKER] * 3
    stored(tmp_path, published([READ_BILL, READ_BILL, *paid, failing, failing]))
    (case,) = rescore_records([tmp_path], "v1.2.2").cases
    assert case.fixed is not None and case.fixed.repeats == 2  # reading and failed calls do not count


def test_cases_on_which_a_fix_failed_are_said_to_be_in_no_number(runs: Path) -> None:
    found = rescore_records([runs], "v1.2.2")
    assert any(case.fixed is None for case in found.cases)  # an injection task run alone: no fix is of those
    assert not [note for note in write_fixed_notes(found) if "a fix itself failed" in note]
    broken = next(case for case in found.cases if case.fixed is not None)
    assert broken.fixed is not None
    found.cases.append(replace(broken, fixed=replace(broken.fixed, utility=None)))
    (note,) = [note for note in write_fixed_notes(found) if "a fix itself failed" in note]
    assert note.startswith("Fixed: 1 cases")


def answered(folder: Path, text: str) -> RescoringResult:
    """Banking 1 wants the sum of a period named in the answer; nothing has to be done."""
    stored(folder, drift(user_task_id="user_task_1", conversations=turns([READ_BILL], text)))
    return rescore_records([folder], "v1.2.2")


@pytest.mark.parametrize(
    ("text", "whole", "section"),
    [
        ("<function_thought>1050</function_thought><final_answer>Nothing.</final_answer>", True, False),
        ("<final_answer>It is 1050.</final_answer>", True, True),
        ("<function_thought>Hm.</function_thought><final_answer>It is 1050.", True, True),
        ("<final_answer>Nothing.</final_answer>", False, False),
        ("<final_answer>Nothing.</final_answer> 1050", True, False),
        ("It is 1050.", True, None),
    ],
)
def test_the_answer_section_is_judged_alone_beside_the_whole_message(
    tmp_path: Path, text: str, whole: bool, section: bool | None
) -> None:
    (case,) = answered(tmp_path, text).cases
    assert (case.scores.utility, case.utility_of_answer) == (whole, section)


def test_a_utility_that_rests_on_thoughts_is_counted_and_written(tmp_path: Path) -> None:
    text = "<function_thought>1050</function_thought><final_answer>Nothing.</final_answer>"
    found = answered(tmp_path / "runs", text)
    assert "the utility of 1 of them would turn false and of 0 true" in write_markdown_document(
        build_rescoring_document(found)
    )
    (case,) = read_cases([written(tmp_path / "runs")]).cases
    assert case.measured["utility_of_answer"] is False


def test_drifts_pipeline_is_told_from_the_model_alone(tmp_path: Path) -> None:
    stored(tmp_path, drift(), "a.json")
    stored(tmp_path, attacked(), "b.json")
    rows = count_fixed_rows(rescore_records([tmp_path], "v1.2").cases)
    assert {row.pipeline for row in rows} == {"some-model", "some-model (drift)"}


def rewritten(runs: Path, version: str = "v1.2.2") -> Path:
    out = runs.parent / "out"
    write_rescored(rescore_records([runs], version).cases, out)
    return out


@pytest.mark.parametrize("content_form", ["strings", "blocks"])
def test_agentdojos_records_are_read_by_its_loader_and_ours(tmp_path: Path, content_form: str) -> None:
    content = attacked(security=False)
    if content_form == "blocks":
        content |= {"messages": in_blocks(content["messages"]), "agentdojo_package_version": "0.1.35"}
    stored(tmp_path / "runs", content)
    out = rewritten(tmp_path / "runs")
    loaded = load_task_results("some-model", "banking", "user_task_0", "direct", "injection_task_0", out)
    assert (loaded.utility, loaded.security) == (False, True)
    assert loaded.messages[0]["content"] == [{"type": "text", "content": "Pay the bill"}]
    (row,) = read_cases([out]).cases
    assert (row.version, row.injection_success, row.notes) == ("v1.2.2", True, ())


def test_drifts_records_stay_drifts_for_us_and_are_read_by_agentdojo(tmp_path: Path) -> None:
    stored(tmp_path / "runs", drift())
    out = rewritten(tmp_path / "runs")
    loaded = load_task_results("some-model", "banking", "user_task_0", "direct", "injection_task_0", out)
    assert (loaded.utility, loaded.security, len(loaded.messages)) == (True, False, 6)
    (row,) = read_cases([out]).cases
    assert (row.defense, row.version, row.utility, row.notes) == ("drift", "v1.2.2", True, ())
    assert len(rescore_records([out]).cases) == 1  # and they can be re-scored once more


def test_our_records_change_version_folder_and_scores_and_say_so(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    run_cases(["model=simulated", "attack=direct", "benchmark.suites=[banking]", "limit_per_suite=1"])
    (before,) = read_cases([tmp_path / "runs"]).cases
    (after,) = read_cases([rewritten(tmp_path / "runs", "v1.1")]).cases
    assert (before.version, after.version) == ("v1.2.2", "v1.1")
    assert "agentdojo-v1.1/" in after.source and after.simulated
    assert after.notes[-1] == "re-scored under v1.1; was v1.2.2"


def test_originals_stay_byte_for_byte(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", attacked(security=False))
    content = path.read_bytes()
    rewritten(tmp_path / "runs")
    assert path.read_bytes() == content


def test_writing_onto_the_originals_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = stored(tmp_path, attacked(security=False))
    content = path.read_bytes()
    with pytest.raises(ConfigError, match="is one of the records themselves"):
        write_rescored(rescore_records([tmp_path], "v1.2.2").cases, tmp_path)
    assert path.read_bytes() == content


def test_two_records_for_one_file_are_refused(tmp_path: Path) -> None:
    stored(tmp_path / "runs", attacked())
    stored(tmp_path / "runs", drift(), "drift.json")
    with pytest.raises(ConfigError, match="would both be written to"):
        rewritten(tmp_path / "runs")
    assert not (tmp_path / "out").exists()


def test_names_in_a_file_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    stored(tmp_path / "runs", published(pipeline_name="../../evil/x"), "a.json")
    out = rewritten(tmp_path / "runs")
    (path,) = out.rglob("*.json")
    assert path.relative_to(out).parts[1:] == ("banking", "user_task_0", "none", "none.json")
    assert orjson.loads(path.read_bytes())["pipeline_name"] == "../../evil/x"
    assert {entry.name for entry in tmp_path.iterdir()} == {"runs", "out"}
