"""Texts per injection vector and variant, AutoDojo's files as they are, folders with a file per suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsys.attacks.injection_vectors import unescape_for_suite
from agentsys.attacks.red_team.cache_files import read_texts
from agentsys.attacks.red_team.cached_attack import CachedAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli import app
from agentsys.contracts import NotInjectable, Victim
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session

BENCHMARK = AgentDojo("v1.2.2")
SLACK = BENCHMARK.suite("slack")
VICTIM = Victim("GPT-4", "Emma Johnson")
SEVERAL = "user_task_20"
"""A user task of Slack that meets four vectors."""
WILD = 'It says "now".\nThen: C:\\new {goal} é 漢字 \u200b'


def autodojo(suite: str = "slack", **more: Any) -> dict[str, Any]:
    """A cache in AutoDojo's form: a web page's vector has five texts, one other was left as it was."""
    texts = [f"{WILD} number {number}" for number in range(5)]
    by_vector = {
        "injection_web_0": {"original": "old", "variants": texts, "trajectory": []},
        "injection_dora_0": {"original": "old", "variants": ["old"] * 5, "trajectory": []},
    }
    return {
        "suite": suite, "n_variants": 5, "method": "m", "iterations": 8, "model": "an-optimiser",
        "defense": "piguard", "defense_run": "r",
        "injection_tasks": {"injection_task_1": by_vector}, **more,
    }  # fmt: skip


def stored(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def texts(attack: CachedAttack, user: str = SEVERAL, injection: str = "injection_task_1") -> dict[str, str]:
    found = attack.injections(SLACK, SLACK.user_tasks[user], SLACK.injection_tasks[injection], VICTIM)
    return dict(found)


def test_texts_land_in_their_vectors_and_nowhere_else(tmp_path: Path) -> None:
    attack = CachedAttack(stored(tmp_path / "injections.json", autodojo()), variant=3)
    found = texts(attack)
    assert set(found) == {"injection_web_0"}
    assert unescape_for_suite(SLACK, found["injection_web_0"]) == f"{WILD} number 3"


def test_a_pair_whose_vectors_have_no_text_is_left_out(tmp_path: Path) -> None:
    attack = CachedAttack(stored(tmp_path / "injections.json", autodojo()), rest="goal")
    for user, fits in ((SEVERAL, True), ("user_task_2", False)):
        task = SLACK.injection_tasks["injection_task_1"]
        assert attack.applies_to(SLACK, SLACK.user_tasks[user], task) is fits
    with pytest.raises(NotInjectable, match="has no text for"):
        texts(attack, "user_task_2")


def test_a_text_for_the_very_place_goes_before_a_wider_one(tmp_path: Path) -> None:
    base = {"suite": "slack", "injection_task": 1}
    narrower: list[dict[str, Any]] = [
        {},
        {"user_task": 20},
        {"vector": "injection_web_0"},
        {"user_task": 20, "vector": "injection_web_0"},
        {"user_task": 20, "vector": "injection_web_0", "variant": 2},
    ]
    for count in range(1, len(narrower) + 1):
        entries = [{**base, **place, "text": f"text {n}"} for n, place in enumerate(narrower[:count])]
        found = texts(CachedAttack(stored(tmp_path / "mine.json", entries)))
        assert found["injection_web_0"] == f"text {count - 1}"
        assert found["injection_dora_0"] == f"text {min(count - 1, 1)}"


def test_a_folder_runs_the_suites_it_has_and_leaves_out_the_others(tmp_path: Path) -> None:
    for suite, vector in (("slack", "injection_web_0"), ("banking", "injection_bill_text")):
        by_vector = {vector: {"original": "", "variants": ["a text"]}}
        content = autodojo(suite, injection_tasks={"injection_task_1": by_vector})
        stored(tmp_path / "cache" / suite / "gpt-4o-mini" / "none" / "injections.json", content)
    plan = ["attack=cached", f"attack.file={tmp_path / 'cache'}", "model=simulated", "injection_tasks=[1]"]
    session = prepare_session(
        [*plan, "benchmark.suites=[slack,banking,travel]", f"logdir={tmp_path / 'runs'}"]
    )
    assert {job.case.suite for job in session.plan.jobs} == {"slack", "banking"}
    (skipped,) = session.plan.skipped
    assert "has no text for" in skipped.summary_line
    # A file moved inside the folder, or changed, is seen; where the folder lies is not.
    before = compose(plan)[0].config_hash
    (tmp_path / "cache").rename(tmp_path / "moved")
    moved = compose([plan[0], f"attack.file={tmp_path / 'moved'}", *plan[2:]])[0]
    assert moved.config_hash == before


def test_two_texts_for_one_place_in_a_folder_are_refused(tmp_path: Path) -> None:
    stored(tmp_path / "a.json", autodojo())
    other = autodojo()
    other["injection_tasks"]["injection_task_1"]["injection_web_0"]["variants"][0] = "another"
    stored(tmp_path / "b.json", other)
    with pytest.raises(ConfigError, match=r"two files have texts for slack injection_task_1.*b\.json"):
        CachedAttack(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no JSON file"):
        CachedAttack(str(tmp_path / "empty"))


def test_the_optimiser_is_never_shown_as_the_victim(tmp_path: Path) -> None:
    path = tmp_path / "slack" / "gpt-4o-mini" / "piguard" / "injections.json"
    file = stored(path, autodojo())
    pair = ["--suite", "slack", "--user-task", "20", "--injection-task", "1", f"attack.file={file}"]
    shown = CliRunner().invoke(app, ["show", "attack", "cached", *pair]).stdout
    assert "optimised by an-optimiser against gpt-4o-mini with piguard (8 iterations); 5 more equal" in shown
    (elsewhere,) = read_texts(Path(stored(tmp_path / "x.json", autodojo()))).sources
    assert elsewhere.startswith("x.json: 5 distinct texts") and "against ? with" in elsewhere


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            autodojo(injection_tasks=[]),
            "AutoDojo cache: 'injection_tasks': Input should be a valid dictionary",
        ),
        (
            autodojo(injection_tasks={"injection_task_1": {"v": {"variants": "x"}}}),
            "'variants': Input should",
        ),
        (
            autodojo(injection_tasks={"injection_task_1": {"v": {"variants": [3]}}}),
            "'text': Input should",
        ),
        (
            [{"suite": "s", "injection_task": 1, "text": "x", "vector": 3}],
            "'vector': Input should be a valid string",
        ),
        (
            [{"suite": "s", "injection_task": 1, "text": "x", "variant": "a"}],
            "'variant': Input should",
        ),
    ],
)
def test_another_form_is_one_line(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        CachedAttack(stored(tmp_path / "x.json", content))
    assert len(str(caught.value).splitlines()) == 1


def test_a_vector_that_the_suite_does_not_have_is_named(tmp_path: Path) -> None:
    attack = CachedAttack(
        stored(tmp_path / "x.json", [{"suite": "slack", "injection_task": 1, "text": "x", "vector": "web"}])
    )
    assert attack.unmatched(BENCHMARK) == ["slack injection_task_1 web"]
    with pytest.raises(ConfigError, match=r"attack\.rest"):
        CachedAttack(str(tmp_path / "x.json"), rest="default")
