"""Folders to cases: whoever wrote the files, wherever in the tree one points, whatever else lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, model_call, span, store_own, store_published
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records import case_reader, folder_index
from agentsys.records.case_reader import list_case_rows, load_runs, read_cases
from agentsys.records.case_row import COLUMNS
from agentsys.records.schema import RoleUsage
from agentsys.records.stored_file import read_case_columns


def test_one_role_without_a_price_makes_the_cost_unknown(tmp_path: Path) -> None:
    usage = {"main": RoleUsage(cost_usd=0.5), "worker": RoleUsage(cost_usd=None)}
    store_own(tmp_path, case_of(), usage=usage)
    assert read_cases([tmp_path]).cases[0].cost_usd is None


def test_one_reply_without_a_count_makes_the_tokens_unknown_and_not_small(tmp_path: Path) -> None:
    usage = {"main": RoleUsage(prompt=9, completion=1, cost_usd=0.5), "worker": RoleUsage(uncounted=1)}
    store_own(tmp_path, case_of(), usage=usage)
    (found,) = read_cases([tmp_path]).cases
    assert (found.prompt_tokens, found.completion_tokens, found.cost_usd) == (None, None, None)
    assert found.tokens_by_role == {}


def test_servers_that_replies_name_and_replies_of_the_cache_are_columns(tmp_path: Path) -> None:
    calls = [
        model_call("agent", 1, 1, provider="Novita", system_fingerprint="fp_1"),
        model_call("agent", 1, 1, provider="Chutes"),
        model_call("agent", 1, 1),
    ]
    usage = {"agent": RoleUsage(calls=3, cache_hits=2, cost_usd=0.0)}
    store_own(tmp_path, case_of(), spans=[span(0, None, "main", calls=calls)], usage=usage)
    (found,) = read_cases([tmp_path]).cases
    assert found.servers == ("provider Chutes", "provider Novita", "system_fingerprint fp_1")
    assert found.cached_replies == 2
    (again,) = list_case_rows(load_runs(tmp_path))
    assert again == found


def test_odd_replies_are_counted_by_the_model_that_gave_them(tmp_path: Path) -> None:
    def asked(model_id: str, **odd: int) -> Any:
        return model_call("agent", 1, 1, model_id=model_id, odd=odd)

    calls = [asked("m-1", empty=2), asked("m-1", empty=1, unparsed_call=1), asked("m-2")]
    store_own(tmp_path, case_of(), spans=[span(0, None, "main", calls=calls)])
    (found,) = read_cases([tmp_path]).cases
    assert found.odd_replies == {"m-1": {"empty": 3, "unparsed_call": 1}}
    (again,) = list_case_rows(load_runs(tmp_path))
    assert again == found


def test_benign_security_is_never_read_as_an_attack(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(attack="none"), security=True)
    store_published(tmp_path, attack_type=None, injection_task_id=None, security=True)
    assert [case.injection_success for case in read_cases([tmp_path]).cases] == [None, None]


@pytest.mark.parametrize(
    ("pipeline", "model", "defense"),
    [
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13", "none"),
        ("gpt-4o-2024-05-13-tool_filter", "gpt-4o-2024-05-13", "tool_filter"),
        ("gpt-4o-2024-05-13-repeat_user_prompt", "gpt-4o-2024-05-13", "prompt_sandwiching"),
        ("gpt-4o-2024-05-13-spotlighting_with_delimiting", "gpt-4o-2024-05-13", "spotlighting_compat"),
        ("gpt-4o-mini-2024-07-18+camel", "gpt-4o-mini-2024-07-18", "camel"),
        ("m-piguard_detector", "m", "piguard"),
        ("m-prompt_guard_2_detector", "m", "prompt_guard_2"),
        ("m-progent", "m", "progent"),
        ("m-melon_sm", "m", "unrecorded (melon_sm)"),
        ("gpt-4o-2024-05-13-my_guard", "gpt-4o-2024-05-13", "unrecorded (my_guard)"),
        ("gpt-4o-2024-05-13-transformers_pi_detector", "gpt-4o-2024-05-13", "protectai"),
        ("my-own_pipeline", "my-own_pipeline", "unrecorded"),
    ],
)
def test_published_pipeline_names_give_model_and_defense(
    tmp_path: Path, pipeline: str, model: str, defense: str
) -> None:
    store_published(tmp_path, pipeline_name=pipeline)
    (found,) = read_cases([tmp_path]).cases
    assert (found.model, found.defense, found.foreign, found.exposed_raw) == (model, defense, True, None)


def test_published_version_is_kept_where_recorded_and_named_unrecorded_where_not(tmp_path: Path) -> None:
    store_published(tmp_path, benchmark_version="v1.2", suite_name="a")
    store_published(tmp_path, suite_name="b")
    assert [case.version for case in read_cases([tmp_path]).cases] == ["v1.2", "unrecorded"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Skipping task due to context_length_exceeded: too long", "context_length"),
        ("Skipping task because of internal server error: 500", "server_error"),
    ],
)
def test_published_error_is_an_errored_case(tmp_path: Path, message: str, kind: str) -> None:
    store_published(tmp_path, error=message, security=True, utility=False)
    (found,) = read_cases([tmp_path]).cases
    assert (found.status, found.error_kind) == ("error", kind)


def test_overlapping_and_linked_folders_are_read_once(tmp_path: Path) -> None:
    logdir = tmp_path / "runs"
    path = store_own(logdir, case_of())
    (logdir / "loop").symlink_to(logdir, target_is_directory=True)
    case_reader = read_cases([logdir, path.parent, logdir])
    assert (len(case_reader.cases), case_reader.repeated_count) == (1, 0)


def test_of_a_case_stored_twice_the_one_without_error_counts(tmp_path: Path) -> None:
    store_own(tmp_path / "one", case_of(), status="error", error_kind="timeout")
    store_own(tmp_path / "two", case_of())
    assert read_cases([tmp_path / "one", tmp_path / "two"]).cases[0].status == "ok"


def test_bad_files_are_skipped_with_a_reason_and_the_rest_is_read(tmp_path: Path) -> None:
    good = store_own(tmp_path, case_of())
    (tmp_path / "a_cut.json").write_text(good.read_text()[:200])
    (tmp_path / "b_empty.json").write_text("")
    unfinished = store_published(tmp_path, suite_name="c")
    unfinished.write_text(unfinished.read_text().replace('"utility"', '"later"'))
    newer = store_own(tmp_path, case_of(suite="newer"))
    newer.write_text(newer.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    wrong = store_own(tmp_path, case_of(suite="wrong"))
    wrong.write_text(wrong.read_text().replace('"status": "ok"', '"status": "\\u001b[31mfine"'))
    case_reader = read_cases([tmp_path])
    reasons = {
        Path(path).name: reason
        for path, reason in case_reader.skipped_files
        if path.startswith(str(tmp_path))
    }
    # A record without a score is an errored case, which `--errors agentdojo` reaches.
    assert {Path(case.source).name: case.error_kind for case in case_reader.cases} == {
        good.name: None,
        unfinished.name: "unscored",
    }
    assert len(case_reader.skipped_files) == 4
    assert "cut off" in reasons["a_cut.json"]
    assert "empty" in reasons["b_empty.json"]
    text = "\n".join(reason for _, reason in case_reader.skipped_files)
    assert "newer agentsys" in text
    assert "agentsys.status" in text
    assert "\x1b" not in text


def test_json_that_only_the_standard_library_reads_is_read(tmp_path: Path) -> None:
    path = store_published(tmp_path, messages=[{"role": "tool", "content": "MARK"}])
    path.write_text(path.read_text().replace('"MARK"', "NaN"))
    assert len(read_cases([tmp_path]).cases) == 1


def test_a_missing_folder_is_one_line_with_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No folder '.*nowhere'. Give the log folder") as raised:
        read_cases([tmp_path / "nowhere"])
    assert "\n" not in str(raised.value)


def test_load_runs_gives_the_documented_columns_and_logs_what_it_skips(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_own(tmp_path, case_of(attack="none"))
    store_own(tmp_path, case_of())
    (tmp_path / "x.json").write_text("{")
    frame = load_runs(tmp_path)
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 2
    assert sorted(frame["injection_success"].isna()) == [False, True]
    assert "x.json" in caplog.text


@pytest.mark.parametrize("second", ["unchanged", "changed"])
def test_a_large_folder_is_read_from_its_index_and_gives_the_same(
    tmp_path: Path, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = tmp_path / "runs"
    (runs / ".agentsys").mkdir(parents=True)
    for suite in ("banking", "slack", "travel"):
        store_own(runs, case_of(suite=suite), notes=("a note",), written={"vector": "text"})
        store_published(runs, pipeline_name=f"other-{suite}", suite_name=suite)
    (runs / "half.json").write_text("{")
    (runs / "plan.json").write_text("[1]")
    _long_ago(runs)
    paths = [next(runs.glob("gpt*")), runs, runs]
    files = read_cases(paths)
    monkeypatch.setattr(case_reader, "WORTH_AN_INDEX", 1)
    assert read_cases(paths) == files
    if second == "changed":
        store_own(runs, case_of(suite="slack"), utility=False, notes=("another note",))
        next(runs.glob("*/travel/*/*/*.json")).unlink()
        assert read_cases(paths) != files
    else:
        monkeypatch.setattr(folder_index, "read_case_columns", _only("half.json"))
    found = read_cases(paths)
    monkeypatch.setattr(folder_index, "read_case_columns", read_case_columns)
    monkeypatch.setattr(case_reader, "WORTH_AN_INDEX", 10_000)
    assert found == read_cases(paths)
    assert len(found.skipped_files) == 1


def _long_ago(folder: Path) -> None:
    """As if written long ago, so that an index may be trusted about it."""
    for path in folder.rglob("*.json"):
        os.utime(path, ns=(10**18, 10**18))


def _only(name: str) -> Callable[[str], object]:
    def read(path: str) -> object:
        assert path.endswith(name), f"{path} was read again"
        return read_case_columns(path)

    return read


@pytest.mark.parametrize("root", ["runs", "."])
def test_one_folder_of_several_is_read_as_if_it_were_alone(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path if root == "runs" else tmp_path / "runs")
    for model in ("one", "one-more"):
        store_own(Path(root), case_of(model=model))
    folders = [path for path in sorted(Path(root).iterdir()) if path.name.startswith("one__")]
    found = read_cases([Path(root)], only=folders)
    assert [case.model for case in found.cases] == ["one"]
    assert found.seen_count == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_pipes_and_devices_are_named_and_never_opened(tmp_path: Path) -> None:
    store_own(tmp_path, case_of())
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "gone")
    (tmp_path / "circle.json").symlink_to("circle.json")
    found = read_cases([tmp_path])
    assert len(found.cases) == 1
    why = {Path(one.path).name: one.reason for one in found.skipped_files}
    assert {name for name, reason in why.items() if "device" in reason} == {
        "pipe.json",
        "pipe.csv",
        "zeros.json",
    }
    assert why["nowhere.json"].startswith("cannot be read")
    assert why["circle.json"].startswith("cannot be read")


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "1" + "0" * 400])
def test_a_number_that_is_none_is_its_own_records_fault_and_told_in_one_line(
    tmp_path: Path, value: str
) -> None:
    good, bad = (store_own(tmp_path, case_of(user_task_id=f"user_task_{number}")) for number in range(2))
    theirs = store_published(tmp_path, user_task_id="user_task_7")
    for path, field in ((bad, "1.5"), (theirs, "2.0")):
        path.write_text(path.read_text().replace(f'"duration": {field}', f'"duration": {value}'))
    found = read_cases([tmp_path])
    assert {case.source: case.duration_s for case in found.cases} == {
        **{str(good): 1.5, str(bad): None, str(theirs): None}
    }
    told = [note for note in found.resolution_notes if "duration_s" in note]
    assert [note.partition(": ")[0] for note in told] == sorted([str(bad), str(theirs)])
    for words in (["results"], ["results", "--full"], ["results", "--by", "cost"], ["check"], ["report"]):
        page = CliRunner().invoke(
            app, [*words, str(tmp_path), *(["--out", str(tmp_path / "r.html")] * (words == ["report"]))]
        )
        assert page.exception is None or isinstance(page.exception, SystemExit), (words, page.exception)
        assert words[0] != "check" or "duration_s" in page.output


@pytest.mark.parametrize(
    ("change", "where"),
    [({"usage": {"main": {"cost_usd": "NUM"}}}, "cost_usd"), ({"measured": {"own": "NUM"}}, "measured")],
)
def test_odd_numbers_deeper_in_a_record_void_no_sum(
    tmp_path: Path, change: dict[str, Any], where: str
) -> None:
    path = store_own(tmp_path, case_of())
    content = json.loads(path.read_text())
    content["agentsys"] |= change
    path.write_text(json.dumps(content).replace('"NUM"', "NaN"))
    (case,) = read_cases([tmp_path]).cases
    assert case.cost_usd is None
    assert case.measured == {}
    assert any(where in note for note in case.notes)


@pytest.mark.parametrize("role", [{"a": 1}, ["main"], None])
def test_a_call_whose_role_is_no_text_voids_no_folder(tmp_path: Path, role: object) -> None:
    path = store_own(tmp_path, case_of())
    content = json.loads(path.read_text())
    content["agentsys"]["spans"] = [{"kind": "main", "calls": [{"role": role, "odd": {"cut": True}}]}]
    path.write_text(json.dumps(content))
    (case,) = read_cases([tmp_path]).cases
    assert case.ended is None


def test_suites_of_agentdyn_are_not_taken_for_agentdojos(tmp_path: Path) -> None:
    for suite in ("slack", "github"):
        store_published(tmp_path, suite_name=suite)
    assert {case.suite: case.benchmark for case in read_cases([tmp_path]).cases} == {
        "slack": "agentdojo",
        "github": "agentdyn",
    }


def test_an_injection_task_that_was_run_alone_is_no_scored_case(tmp_path: Path) -> None:
    store_published(tmp_path, user_task_id="injection_task_1", injection_task_id=None, attack_type=None)
    store_published(tmp_path, user_task_id="user_task_1", injection_task_id=None, attack_type=None)
    scored = {case.user_task_id: case.is_scored for case in read_cases([tmp_path]).cases}
    assert scored == {"injection_task_1": False, "user_task_1": True}
