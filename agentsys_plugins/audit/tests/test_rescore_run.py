"""`rescore` over folders: agreement, flips, and everything that was left out, counted apart."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from stored_cases import (
    PAY_ATTACKER,
    READ_BILL,
    attacked,
    case_of,
    drift,
    published,
    store_own,
    stored,
    turns,
)

from agentsys.analysis.tables.table_document import OutputFormat, write_markdown_document
from agentsys.cli import app
from agentsys.cli.cli_output import render_output
from agentsys.cli.terminal import run_to_exit_status
from agentsys.errors import ConfigError
from agentsys_plugins.audit.rescoring import score_memory
from agentsys_plugins.audit.rescoring.recorded_trajectory import RecordFault
from agentsys_plugins.audit.rescoring.rescore import RescoringResult, rescore_records
from agentsys_plugins.audit.rescoring.rescoring_document import (
    ALL_SUITES,
    INJECTION_TASKS_ALONE,
    build_rescoring_document,
    count_agreements,
)
from agentsys_plugins.audit.rescoring.rescoring_export import RESCORING_COLUMNS, build_rescoring_output


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """One record of every kind."""
    folder = tmp_path / "runs"
    stored(folder, published())
    stored(folder, attacked())
    # Two that agree and one that does not: counting the wrong ones shows.
    stored(folder, attacked(attack_type="again", pipeline_name="some-model"), "some-model/again.json")
    stored(
        folder,
        attacked(attack_type="wrong", security=False, pipeline_name="some-model"),
        "some-model/wrong.json",
    )
    stored(folder, published(user_task_id="user_task_1", messages=[]))
    stored(folder, attacked(user_task_id="user_task_2", error="server error"))
    stored(folder, published(user_task_id="user_task_99"))
    stored(folder, published(suite_name="shopping"))
    stored(folder, attacked(user_task_id="user_task_3") | {"injections": {"no_such_vector": "x"}})
    alone = turns([READ_BILL, PAY_ATTACKER])
    stored(folder, published(user_task_id="injection_task_0", messages=alone))
    stored(folder, {"plan": []}, "plan.json")
    (folder / "broken.json").write_text("{")
    stored(folder, published(), "copy.json")
    return folder


def test_agreement_is_counted_per_suite_and_injection_tasks_alone_apart(runs: Path) -> None:
    found = rescore_records([runs], "v1.2.2")
    rows = {row.suite: row for row in count_agreements(found.cases)}
    assert list(rows) == ["banking", ALL_SUITES, INJECTION_TASKS_ALONE]
    banking = rows["banking"]
    assert (banking.cases, banking.utility, banking.security) == (4, 4, 3)
    assert (banking.attacked, banking.attacked_security) == (3, 2)
    assert (banking.succeeded_recorded, banking.succeeded) == (2, 3)
    assert (rows[INJECTION_TASKS_ALONE].cases, rows[INJECTION_TASKS_ALONE].utility) == (1, 1)


def test_what_is_left_out_is_counted_by_kind_and_everything_adds_up(runs: Path) -> None:
    found = rescore_records([runs], "v1.2.2")
    kinds = [record.obstacle for record in found.skipped]
    assert sorted(kinds) == sorted(
        [
            RecordFault.HOLLOW,
            RecordFault.ERROR,
            RecordFault.NOT_HERE,
            RecordFault.NOT_HERE,
            RecordFault.CHECK_FAILED,
            RecordFault.UNREADABLE,
            RecordFault.REPEATED,
        ]
    )
    assert len(found.cases) + len(found.skipped) + found.other_files == len(list(runs.rglob("*.json")))


@pytest.mark.slow
def test_several_processes_find_what_one_finds_in_the_same_order(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys_plugins.audit.rescoring.rescore._FILES_PER_PORTION", 3)
    assert rescore_records([runs], "v1.2.2", processes=2) == rescore_records([runs], "v1.2.2")


def test_without_a_version_each_record_names_its_own(tmp_path: Path) -> None:
    stored(tmp_path, drift())
    assert [case.version for case in rescore_records([tmp_path]).cases] == ["v1.2"]
    stored(tmp_path, published())
    with pytest.raises(ConfigError, match=r"names no benchmark version.*--version v1\.1.*Known: v1, v1\.1"):
        rescore_records([tmp_path])


def test_an_unknown_version_of_the_user_is_an_error_and_of_a_record_is_skipped(tmp_path: Path) -> None:
    stored(tmp_path, published(benchmark_version="v9"))
    with pytest.raises(ConfigError, match="v9"):
        rescore_records([tmp_path], "v9")
    (skipped,) = rescore_records([tmp_path]).skipped
    assert (skipped.obstacle, skipped.reason) == (
        RecordFault.NOT_HERE,
        "no version v9 of agentdojo is installed",
    )


def test_other_benchmarks_are_not_scored_by_agentdojos_checks(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(benchmark="asb", attack="none"))
    for version in ("v1.2.2", None):
        (skipped,) = rescore_records([tmp_path], version).skipped
        assert skipped.obstacle is RecordFault.OTHER_BENCHMARK


def test_suites_of_ones_own_are_called_another_benchmark_and_no_missing_version(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(benchmark="nested", version="nested-v1", attack="none"))
    (skipped,) = rescore_records([tmp_path]).skipped
    assert (skipped.obstacle, skipped.reason) == (
        RecordFault.OTHER_BENCHMARK,
        "benchmark nested is not re-scored",
    )


def test_csv_has_a_line_per_record_and_no_formula(tmp_path: Path) -> None:
    stored(tmp_path, published(pipeline_name="=cmd()"), "a.json")
    lines = list(
        csv.DictReader(
            io.StringIO(
                render_output(
                    build_rescoring_output(rescore_records([tmp_path], "v1.1")), OutputFormat.CSV
                ).decode()
            )
        )
    )
    assert tuple(lines[0]) == tuple(RESCORING_COLUMNS)
    assert (lines[0]["pipeline"], lines[0]["utility"], lines[0]["security"]) == ("'=cmd()", "True", "")


def test_names_from_files_do_not_steer_a_terminal(tmp_path: Path) -> None:
    stored(tmp_path, published(pipeline_name="evil\x1b[31m", suite_name="\x1b]0;x"), "a.json")
    found = rescore_records([tmp_path], "v1.1")
    assert "\x1b" not in render_output(
        build_rescoring_output(found), OutputFormat.JSON
    ).decode() + write_markdown_document(build_rescoring_document(found))


@pytest.fixture
def two_runs(tmp_path: Path) -> Path:
    idle = published(user_task_id="user_task_6", utility=False, messages=turns([], "No."))
    stored(tmp_path / "two_runs", idle)
    return tmp_path / "two_runs"


def status_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentsys", "rescore", *words])
    try:
        return run_to_exit_status(app)
    except SystemExit as left:
        return int(left.code or 0)


def test_the_table_shows_agreement_the_flip_and_its_reason(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, str(two_runs), "--version", "v1.2.2") == 0
    shown = capsys.readouterr().out
    assert "0 of 1" in shown and "1 of 1" in shown
    assert "false -> true checker changed as recorded under v1, v1.1," in " ".join(shown.split())


def test_records_are_written_where_out_says(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = two_runs.parent / "new"
    assert status_of(monkeypatch, str(two_runs), "--version", "v1.2.2", "--out", str(out)) == 0
    assert "Wrote 1 record" in capsys.readouterr().err
    written = orjson.loads((out / "some-model/banking/user_task_6/none/none.json").read_bytes())
    assert (written["utility"], written["benchmark_version"]) == (True, "v1.2.2")


def test_fixes_are_chosen_by_name_and_a_wrong_one_says_which_there_are(
    two_runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(two_runs), "--version", "v1.2.2", "--format", "json", "--fixes")
    assert status_of(monkeypatch, *words, "any_match, utility_new_effects") == 0
    fixed = json.loads(capsys.readouterr().out)["fixed"]
    assert fixed["fixes"] == ["utility_new_effects", "any_match"]
    assert [case["changed_by"] for case in fixed["changed"]] == [["utility_new_effects"]]
    assert status_of(monkeypatch, *words, "append_injection") == 2
    said = capsys.readouterr().err
    assert "changes what models read" in said and "Traceback" not in said


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    score_memory._load.cache_clear()
    return tmp_path / "cache"


def _again(runs: Path) -> RescoringResult:
    score_memory._load.cache_clear()
    return rescore_records([runs], "v1.2.2", remember=True)


def test_only_changed_records_are_scored_again_and_all_come_out_as_before(runs: Path, cache: Path) -> None:
    files = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    first, second = _again(runs), _again(runs)
    assert (first.known, second.known) == (0, len(first.cases)) and len(first.cases) > 4
    assert second == replace(first, known=second.known) and any(case.flips for case in second.cases)
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == files
    stored(
        runs,
        attacked(attack_type="wrong", security=True, pipeline_name="some-model"),
        "some-model/wrong.json",
    )
    third = _again(runs)
    assert third.known == len(third.cases) - 1 and not any(case.flips for case in third.cases)
    assert third == replace(rescore_records([runs], "v1.2.2"), known=third.known)


@pytest.mark.parametrize("why", ["code", "version", "damage", "form"])
def test_what_an_earlier_check_found_counts_only_as_long_as_nothing_else_has_changed(
    why: str, runs: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _again(runs)
    (memory,) = cache.rglob("scores/*.json")
    if why == "code":
        monkeypatch.setattr(score_memory, "hash_package_files", lambda: {"a.py": "other"})
    elif why == "damage":
        memory.write_bytes(memory.read_bytes()[:-9])
    elif why == "form":
        memory.write_bytes(
            orjson.dumps({key: {"version": "v1"} for key in orjson.loads(memory.read_bytes())})
        )
    if why == "version":
        assert rescore_records([runs], "v1.2.1", remember=True).known == 0
    else:
        assert _again(runs) == first
