"""`agentsys rescore` as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import orjson
import pytest

from agentsys.cli import app
from agentsys.cli.terminal import run_to_exit_status

RECORD = {
    "suite_name": "banking",
    "pipeline_name": "some-model",
    "user_task_id": "user_task_6",
    "injection_task_id": None,
    "attack_type": None,
    "injections": {},
    "messages": [
        {"role": "user", "content": "Set it up"},
        {"role": "assistant", "content": "No.", "tool_calls": None},
    ],
    "error": None,
    "utility": False,
    "security": True,
    "duration": 1.0,
}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "some-model" / "banking" / "user_task_6" / "none" / "none.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(orjson.dumps(RECORD))
    return tmp_path / "runs"


def status_of(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agentsys", "rescore", *words])
    try:
        return run_to_exit_status(app)
    except SystemExit as left:
        return int(left.code or 0)


def test_the_table_shows_agreement_the_flip_and_its_reason(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(monkeypatch, str(runs), "--version", "v1.2.2") == 0
    shown = capsys.readouterr().out
    assert "0 of 1" in shown and "1 of 1" in shown
    assert "false -> true checker changed as recorded under v1, v1.1," in " ".join(shown.split())


def test_records_are_written_where_out_says(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = runs.parent / "new"
    assert status_of(monkeypatch, str(runs), "--version", "v1.2.2", "--out", str(out)) == 0
    assert "Wrote 1 record" in capsys.readouterr().err
    written = orjson.loads((out / "some-model/banking/user_task_6/none/none.json").read_bytes())
    assert (written["utility"], written["benchmark_version"]) == (True, "v1.2.2")


def test_fixes_are_chosen_by_name_and_a_wrong_one_says_which_there_are(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (str(runs), "--version", "v1.2.2", "--format", "json", "--fixes")
    assert status_of(monkeypatch, *words, "any_match, utility_new_effects") == 0
    fixed = json.loads(capsys.readouterr().out)["fixed"]
    assert fixed["fixes"] == ["utility_new_effects", "any_match"]
    assert [case["changed_by"] for case in fixed["changed"]] == [["utility_new_effects"]]
    assert status_of(monkeypatch, *words, "append_injection") == 2
    said = capsys.readouterr().err
    assert "changes what models read" in said and "Traceback" not in said
