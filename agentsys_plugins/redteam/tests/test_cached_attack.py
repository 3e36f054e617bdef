"""Texts from files, per pair, vector and variant: every form a researcher may have, one line for anything else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from agentsys.attacks.injection_vectors import find_injectable_vectors, unescape_for_suite
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.cli import app
from agentsys.contracts import Attack, NotInjectable, Victim
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.redteam.cache_files import TextKey, read_texts
from agentsys_plugins.redteam.cached_attack import CachedAttack

SUITE = AgentDojo("v1.2.2").suite("banking")
VICTIM = Victim("GPT-4", "Emma Johnson")
OWN = {"suite": "banking", "user_task": "user_task_0", "injection_task": "injection_task_1", "text": "own"}
SHARED = {"suite": "banking", "user_task": None, "injection_task": "injection_task_1", "text": "shared"}
EXPECTED = {
    TextKey("banking", "user_task_0", "injection_task_1"): "own",
    TextKey("banking", None, "injection_task_1"): "shared",
}


def read_cache(path: Path) -> Mapping[TextKey, str]:
    return read_texts(path).texts


def stored(folder: Path, content: Any, name: str = "mine.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def absent(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if value is not None}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("list.json", [OWN, SHARED]),
        ("list.json", [OWN, absent(SHARED)]),
        ("list.json", [{**OWN, "user_task": 0, "injection_task": "1", "loss": 0.3}, SHARED]),
        ("lines.jsonl", f"{json.dumps(OWN)}\n\n{json.dumps(SHARED)}\n"),
        ("lines.txt", f"{json.dumps(OWN)}\r\n{json.dumps(SHARED)}"),
        ("bom.json", "\ufeff" + json.dumps([OWN, SHARED])),
        ("entries.json", {"entries": [OWN, SHARED]}),
    ],
)
def test_each_form_gives_the_same_texts(tmp_path: Path, name: str, content: Any) -> None:
    assert read_cache(stored(tmp_path, content, name)) == EXPECTED


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "line 1: not valid JSON"),
        ("[]", "holds no text"),
        ('"text"', "no list and no mapping"),
        ('[\n{"suite":', "line 2: not valid JSON"),
        ([{**OWN, "text": ""}], "entry 1: 'text': String should have at least 1 character"),
        ([{**OWN, "text": "a\ud800"}], "entry 1: 'text': Input should be a valid string"),
        ([absent({**OWN, "injection_task": None})], "entry 1: 'injection_task': Field required"),
        ([{**SHARED, "usertask": "user_task_3"}], "_SKIP_"),
        ([{**absent(SHARED), "usertask": "user_task_3"}], "unknown key 'usertask'; did you mean user_task"),
        ([{**OWN, "user_task": -1}], "entry 1: 'user_task': Input should be a valid string"),
        ([OWN, {**OWN, "text": "other"}], "entry 2: a second, different text"),
        ({"format": 3, "entries": []}, "only formats 1 and 2"),
        ({"banking": {"user_task_0": ["x"]}}, "'banking > user_task_0': no list and no mapping"),
        (
            {"banking": {"user_task_0": {"injection_task_0": 1}}},
            "'injection_task_0': 'text': Input should be",
        ),
        ('{"a": {}, "a": {}}', "the key 'a' stands twice"),
        (f"{json.dumps(OWN)}\n{{broken\n", "line 2: not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
    ],
)
def test_anything_else_is_one_line_with_place_and_mend(tmp_path: Path, content: Any, says: str) -> None:
    path = stored(tmp_path, content)
    if says == "_SKIP_":  # a key that only resembles one that is there is somebody's own
        assert read_cache(path)
        return
    with pytest.raises(ConfigError) as caught:
        read_cache(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["suite", "text", "entries", "x\n\x1b", "user_task"]), inner, max_size=4
            )
        ),
        max_leaves=8,
    )
)
def test_no_file_breaks_the_reader(tmp_path_factory: Any, content: Any) -> None:
    path = tmp_path_factory.mktemp("any") / "file.json"
    path.write_text(json.dumps(content))
    try:
        assert read_cache(path)
    except ConfigError as error:
        assert str(error).isprintable()


def test_a_file_that_is_not_there_or_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_cache(tmp_path / "nowhere.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_cache(tmp_path / "bytes.json")


@pytest.mark.parametrize("file", [3, None, ""])
def test_what_is_no_files_name_is_one_line(file: Any) -> None:
    with pytest.raises(ConfigError, match="give the name of a file with texts"):
        CachedAttack(file)


def test_a_pairs_own_text_goes_before_the_one_for_all_user_tasks(tmp_path: Path) -> None:
    attack = CachedAttack(str(stored(tmp_path, [OWN, SHARED])))
    assert isinstance(attack, Attack)
    injection = SUITE.injection_tasks["injection_task_1"]
    for user, text in (("user_task_0", "own"), ("user_task_1", "shared")):
        task = SUITE.user_tasks[user]
        written = attack.injections(SUITE, task, injection, VICTIM)
        assert written == dict.fromkeys(find_injectable_vectors(SUITE, task), text)
        assert attack.applies_to(SUITE, task, injection)


def test_the_label_names_the_cache_and_its_content_is_part_of_the_identity(tmp_path: Path) -> None:
    path = stored(tmp_path, [OWN], "gcg_v2.json")
    (found,) = compose(["attack=cached", f"attack.file={path}"])
    assert found.labels["attack"] == "cached-gcg_v2" == CachedAttack(str(path)).name
    (named,) = compose(["attack=cached", f"attack.file={path}", "attack.name=gcg"])
    assert named.labels["attack"] == "gcg"
    moved = stored(tmp_path, [OWN], "elsewhere.json")
    (same,) = compose(["attack=cached", f"attack.file={moved}", "attack.name=gcg"])
    assert same.config_hash == named.config_hash
    stored(tmp_path, [SHARED], "elsewhere.json")
    (changed,) = compose(["attack=cached", f"attack.file={moved}", "attack.name=gcg"])
    assert changed.config_hash != named.config_hash
    with pytest.raises(ConfigError, match=r"attack\.file .*No such file"):
        compose(["attack=cached", f"attack.file={tmp_path / 'nowhere'}"])


def test_texts_for_tasks_that_are_not_there_are_named_and_the_others_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = [
        {**OWN, "suite": "bankin"},
        {**OWN, "user_task": "user_task_99"},
        {**SHARED, "injection_task": "injection_task_77"},
        {**OWN, "suite": "slack"},
    ]
    file = stored(tmp_path, [OWN, *wrong])
    chosen = ["model=simulated", "benchmark.suites=[banking]", "attack=cached", f"attack.file={file}"]
    session = prepare_session([*chosen, f"logdir={tmp_path / 'runs'}"])
    assert len(session.plan.jobs) == 1
    (line,) = [record.getMessage() for record in caplog.records if "not there" in record.getMessage()]
    assert line == (
        "cached-mine: 3 texts are for tasks that are not there: bankin user_task_0 injection_task_1, banking"
        " injection_task_77, banking user_task_99 injection_task_1."
    )


BENCHMARK = AgentDojo("v1.2.2")
SLACK = BENCHMARK.suite("slack")
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


def store_file(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def texts(attack: CachedAttack, user: str = SEVERAL, injection: str = "injection_task_1") -> dict[str, str]:
    found = attack.injections(SLACK, SLACK.user_tasks[user], SLACK.injection_tasks[injection], VICTIM)
    return dict(found)


def test_texts_land_in_their_vectors_and_nowhere_else(tmp_path: Path) -> None:
    attack = CachedAttack(store_file(tmp_path / "injections.json", autodojo()), variant=3)
    found = texts(attack)
    assert set(found) == {"injection_web_0"}
    assert unescape_for_suite(SLACK, found["injection_web_0"]) == f"{WILD} number 3"


def test_a_pair_whose_vectors_have_no_text_is_left_out(tmp_path: Path) -> None:
    attack = CachedAttack(store_file(tmp_path / "injections.json", autodojo()), rest="goal")
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
        found = texts(CachedAttack(store_file(tmp_path / "mine.json", entries)))
        assert found["injection_web_0"] == f"text {count - 1}"
        assert found["injection_dora_0"] == f"text {min(count - 1, 1)}"


def test_a_folder_runs_the_suites_it_has_and_leaves_out_the_others(tmp_path: Path) -> None:
    for suite, vector in (("slack", "injection_web_0"), ("banking", "injection_bill_text")):
        by_vector = {vector: {"original": "", "variants": ["a text"]}}
        content = autodojo(suite, injection_tasks={"injection_task_1": by_vector})
        store_file(tmp_path / "cache" / suite / "gpt-4o-mini" / "none" / "injections.json", content)
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
    store_file(tmp_path / "a.json", autodojo())
    other = autodojo()
    other["injection_tasks"]["injection_task_1"]["injection_web_0"]["variants"][0] = "another"
    store_file(tmp_path / "b.json", other)
    with pytest.raises(ConfigError, match=r"two files have texts for slack injection_task_1.*b\.json"):
        CachedAttack(str(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no JSON file"):
        CachedAttack(str(tmp_path / "empty"))


def test_the_optimiser_is_never_shown_as_the_victim(tmp_path: Path) -> None:
    path = tmp_path / "slack" / "gpt-4o-mini" / "piguard" / "injections.json"
    file = store_file(path, autodojo())
    pair = ["--suite", "slack", "--user-task", "20", "--injection-task", "1", f"attack.file={file}"]
    shown = CliRunner().invoke(app, ["show", "attack", "cached", *pair]).stdout
    assert "optimised by an-optimiser against gpt-4o-mini with piguard (8 iterations); 5 more equal" in shown
    (elsewhere,) = read_texts(Path(store_file(tmp_path / "x.json", autodojo()))).sources
    assert elsewhere.startswith("x.json: 5 distinct texts") and "against ? with" in elsewhere


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            autodojo(injection_tasks=[]),
            "AutoDojo cache: 'injection_tasks': Input should be a valid dictionary",
        ),
        (autodojo(injection_tasks={"injection_task_1": {"v": {"variants": [3]}}}), "'text': Input should"),
        (
            [{"suite": "s", "injection_task": 1, "text": "x", "vector": 3}],
            "'vector': Input should be a valid string",
        ),
    ],
)
def test_another_form_is_one_line(tmp_path: Path, content: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        CachedAttack(store_file(tmp_path / "x.json", content))
    assert len(str(caught.value).splitlines()) == 1


def test_a_vector_that_the_suite_does_not_have_is_named(tmp_path: Path) -> None:
    attack = CachedAttack(
        store_file(
            tmp_path / "x.json", [{"suite": "slack", "injection_task": 1, "text": "x", "vector": "web"}]
        )
    )
    assert attack.unmatched(BENCHMARK) == ["slack injection_task_1 web"]
    with pytest.raises(ConfigError, match=r"attack\.rest"):
        CachedAttack(str(tmp_path / "x.json"), rest="default")
