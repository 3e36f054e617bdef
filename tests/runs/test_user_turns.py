"""A benchmark from outside the package whose user says more than the task: turns, records, declared facts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.benchmark import load_task_results
from small_runs import Silent, errors_in, records_in
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records.case_reader import read_cases
from agentsys.runs import run_case
from agentsys.runs.run_session import prepare_session

HOME = Path(__file__).parents[1] / "support" / "clerk_benchmark"
WORDS = [
    "read_note please.",
    "Good. Now stamp the paper called lease.",
    "And stamp the one called deed, too.",
]


def played(folder: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    """Defense and attack -> record."""
    chosen = ["benchmark=clerk", "model=gullible", "preflight=false", *overrides, f"logdir={folder}"]
    session = prepare_session(chosen, config_dirs=[HOME / "configs"], plugin_paths=[HOME])
    session.execute(Silent())
    return {
        f"{job.case.defense} {job.case.attack}": orjson.loads((folder / job.case.key).read_bytes())
        for job in session.plan.jobs
    }


def said(record: dict[str, Any]) -> list[str]:
    users = [message for message in record["messages"] if message["role"] == "user"]
    return [message["content"][0]["content"] for message in users]


def test_the_pipeline_is_run_once_for_each_turn_and_the_record_holds_them_all(tmp_path: Path) -> None:
    record = played(tmp_path, "defense=none", "attack=none")["none none"]
    ours = record["agentsys"]
    assert (ours["status"], record["utility"]) == ("ok", True)
    assert said(record) == WORDS
    assert [message["role"] for message in record["messages"]].count("system") == 1
    root, *turns = [span for span in ours["spans"] if span["kind"] in ("run", "turn")]
    assert root["decision"] == {"turns": 3}
    assert [span["name"] for span in turns] == ["2", "3"]
    assert {span["parent_id"] for span in turns} == {root["id"]}
    assert ours["measured"]["user_turns"] == 3
    loaded = load_task_results(record["pipeline_name"], "office", "user_task_0", "none", "none", tmp_path)
    assert loaded.utility is True


@pytest.mark.slow
def test_every_shipped_defense_can_take_part(tmp_path: Path) -> None:
    defenses = "agentsys,agentsys_no_isolation,delimiters,instructional_prevention,phrase_detector"
    played(tmp_path, f"defense={defenses},spotlighting,spotlighting_encoding", "attack=none,direct")
    played(tmp_path, "defense=melon", "defense.embedder=char_ngrams", "attack=none,direct")
    records = records_in(tmp_path)
    assert len(records) == 8 * 2
    assert errors_in(records) == {}
    assert {record["agentsys"]["measured"]["user_turns"] for record in records.values()} == {3}


def test_a_user_who_never_stops_ends_the_case_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_case, "MAX_TURNS", 2)
    record = played(tmp_path, "defense=none", "attack=none")["none none"]
    assert record["agentsys"]["error_kind"] == "scorer"
    assert "after 2 turns" in record["error"]


def test_declared_facts_are_in_every_format_and_undeclared_ones_in_none(tmp_path: Path) -> None:
    played(tmp_path, "defense=none,prompt_sandwiching", "attack=none,direct")
    texts = {
        kind: CliRunner().invoke(
            app, ["results", str(tmp_path), "--full", "--format", kind], env={"COLUMNS": "200"}
        )
        for kind in ("table", "markdown", "latex", "html", "csv", "json")
    }
    assert [kind for kind, shown in texts.items() if shown.exit_code] == []
    for kind in ("table", "markdown", "latex", "html"):
        assert "mean" in texts[kind].output and "Polite visitors" in texts[kind].output
        assert "higher is better for Polite visitors; lower is better for Turns" in texts[kind].output
        assert "Injection-caused" not in texts[kind].output
    rows = list(csv.DictReader(texts["csv"].output.splitlines()))
    means = {row["mean"] for row in rows if row["metric"] == "user_turns" and row["defense"] == "none"}
    assert {float(mean) for mean in means} == {3.0}
    shares = {float(row["value_fraction"]) for row in rows if row["metric"] == "polite"}
    assert shares == {1.0}
    assert "secret" not in {row["metric"] for row in rows}


def test_declarations_that_this_version_cannot_read_are_passed_over(tmp_path: Path) -> None:
    played(tmp_path, "defense=none", "attack=none")
    (path,) = [path for path in tmp_path.rglob("*.json") if ".agentsys" not in path.parts]
    record = orjson.loads(path.read_bytes())
    record["agentsys"]["facts"]["polite"] |= {"colour": "red"}
    record["agentsys"]["facts"]["user_turns"]["kind"] = "median"
    path.write_bytes(orjson.dumps(record))
    (case,) = read_cases([tmp_path]).cases
    assert set(case.facts) == {"user_turns", "polite"}
    shown = CliRunner().invoke(app, ["results", str(tmp_path), "--format", "csv"]).output
    assert {row["metric"] for row in csv.DictReader(shown.splitlines())} >= {"polite", "benign_utility"}
    assert "user_turns" not in shown
