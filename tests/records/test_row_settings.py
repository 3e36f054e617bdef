"""A row is one resolved configuration: cases of one name are told apart by what differs in what they ran with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.models.chat import ChatReply, ChatRequest, assistant
from agentsys.records.case_reader import list_case_rows, load_runs, read_cases
from agentsys.records.row_settings import NOTED
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session
from agentsys.runs.settings import Settings

Json = dict[str, Any]

CONFIG: Json = {
    "model": {
        "_target_": "agentsys:model.openai",
        "name": "gpt-4o",
        "model_id": "gpt-4o",
        "temperature": 0.0,
        "max_tokens": 4096,
        "base_url": "https://a/v1",
        "tools": "native",
        "roles": {"worker": None, "validator": "small"},
        "extra_body": {"top_p": 1},
    },
    "defense": {"_target_": "my_fence.Fence", "mark": "^", "rules": ["a", "b"]},
    "attack": {"_target_": "agentsys:attack.template", "text": "Do it."},
    "benchmark": {"_target_": "agentsys:benchmark.agentdojo", "version": "v1.2.2", "fixes": ["any_match"]},
    "others": {"small": {"_target_": "agentsys:model.openai", "model_id": "s", "temperature": 0.0}},
    "files": {"attack.file": "00aa", "defense.words": "00bb"},
    "code": {"my_fence.py": "00cc"},
    "packages": {"fence-tools": "1.0 00dd"},
    "seed": 0,
    "versions": {"agentsys": "0.2.0", "agentdojo": "0.1.35"},
}

BENIGN = {"attack": "none"}


def keep(logdir: Path, config_hash: str, config: Json | None, *cases: Json) -> None:
    """Records under one config, which is kept beside them unless it is None."""
    for fields in cases:
        store_own(logdir, case_of(**fields), config_hash=config_hash)
    if config is not None:
        path = logdir / ".agentsys/configs" / f"{config_hash}.config"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(config))


def users(*numbers: int, **fields: Any) -> list[Json]:
    return [{"user_task_id": f"user_task_{number}", **fields} for number in numbers]


def changed(place: str, value: Any, config: Json = CONFIG) -> Json:
    found = deepcopy(config)
    *parents, last = place.split("/")
    node = found
    for parent in parents:
        node = node[parent]
    if value is DROPPED:
        del node[last]
    else:
        node[last] = value
    return found


DROPPED = object()


def names(*folders: Path) -> list[tuple[str, str, str]]:
    """Model, defense and attack of the rows; `load_runs` must give the same."""
    cases = read_cases(folders).cases
    assert list_case_rows(load_runs(folders)) == list(cases)
    return sorted({(case.table_model, case.defense, case.attack) for case in cases})


ATTACK = "important_instructions"
DECIDING = [
    ("model/temperature", 0.9, "model", "temperature=0", "temperature=0.9"),
    ("model/max_tokens", DROPPED, "model", "max_tokens=4096", "max_tokens=not set"),
    ("model/model_id", "gpt-5", "model", "model_id=gpt-4o", "model_id=gpt-5"),
    ("model/max_tokens", 1, "model", "max_tokens=4096", "max_tokens=1"),
    ("model/tools", "text", "model", "tools=native", "tools=text"),
    ("model/extra_body/top_p", 0.5, "model", "extra_body.top_p=1", "extra_body.top_p=0.5"),
    ("model/roles/validator", "large", "model", "roles.validator=small", "roles.validator=large"),
    ("model/_target_", "my.Model", "model", "class=agentsys:model.openai", "class=my.Model"),
    ("others/small/temperature", 1, "model", "small.temperature=0", "small.temperature=1"),
    ("benchmark/fixes", [], "model", 'benchmark.fixes=["any_match"]', "benchmark.fixes=not set"),
    ("seed", 7, "model", "seed=0", "seed=7"),
    ("versions/agentdojo", "0.1.36", "model", "agentdojo=0.1.35", "agentdojo=0.1.36"),
    ("defense/mark", "#", "defense", "mark=^", "mark=#"),
    ("defense/rules", ["a"], "defense", 'rules=["a", "b"]', 'rules=["a"]'),
    ("files/defense.words", "00ff", "defense", "content of words=00bb", "content of words=00ff"),
    ("code/my_fence.py", "00ee", "defense", "code of my_fence.py=00cc", "code of my_fence.py=00ee"),
    ("packages/fence-tools", "1.1 11", "defense", "package fence-tools=1.0 00dd", "package fence-tools=1.1 11"),
    ("attack/text", "Now.", "attack", "text=Do it.", "text=Now."),
    ("files/attack.file", "11", "attack", "content of file=00aa", "content of file=11"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value", "part", "first", "second"), DECIDING)
def test_a_setting_that_decides_splits_the_row_and_is_named(
    tmp_path: Path, place: str, value: Any, part: str, first: str, second: str
) -> None:
    keep(tmp_path, "0" * 16, CONFIG, *users(0, 1, 2))
    keep(tmp_path, "1" * 16, changed(place, value), *users(3, 4))
    plain = {"model": "gpt-4o", "defense": "agentsys", "attack": ATTACK}
    told = [tuple({**plain, part: f"{plain[part]} [{label}]"}.values()) for label in (first, second)]
    assert names(tmp_path) == sorted(told)
    (line,) = read_cases([tmp_path]).mixed_settings
    assert all(label.partition("=")[2] in line for label in (first, second))


@pytest.mark.parametrize("place", sorted(NOTED))
def test_a_setting_that_decides_nothing_is_noted_and_splits_nothing(tmp_path: Path, place: str) -> None:
    keep(tmp_path, "0" * 16, CONFIG, *users(0, 1))
    keep(tmp_path, "1" * 16, changed(place.replace(".", "/"), "other"), *users(2))
    assert names(tmp_path) == [("gpt-4o", "agentsys", ATTACK)]
    found = read_cases([tmp_path])
    assert found.mixed_settings == ()
    (line,) = found.noted_settings
    assert place.partition(".")[2] in line
    assert "other" in line


def list_leaves(value: Any, place: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from list_leaves(inner, f"{place}/{key}" if place else key)
    else:
        yield place


def settings_of(overrides: list[str]) -> Settings:
    return compose(overrides)[0]


@pytest.mark.parametrize(
    "overrides", [["defense=agentsys"], ["defense=melon", "attack=pair"], ["defense=camel"]]
)
def test_every_field_of_a_shipped_identity_is_noted_or_splits(tmp_path: Path, overrides: list[str]) -> None:
    """Changed one by one, so that no field added later is passed over."""
    identity = json.loads(json.dumps(settings_of(overrides).identity))
    for number, place in enumerate(list_leaves(identity)):
        folder = tmp_path / str(number)
        keep(folder, "0" * 16, identity, *users(0))
        keep(folder, "1" * 16, changed(place, "something else", identity), *users(1))
        rows = {(case.table_model, case.defense, case.attack) for case in read_cases([folder]).cases}
        assert len(rows) == (1 if place.replace("/", ".") in NOTED else 2), place


@pytest.mark.parametrize(
    "change",
    [
        *("executor.workers=3", "logdir=elsewhere", "epochs=2", "limit_per_suite=3", "user_tasks=[0]"),
        *("budget.usd=3", "cache.dir=shared", "preflight=false", "benchmark.suites=[slack]"),
        *(
            "model.timeout_s=7",
            "+model.rate.requests_per_minute=3",
            "model.api_key_env=OTHER",
            "+model.price.input=1",
        ),
    ],
)
def test_what_says_how_a_run_is_made_is_in_no_hash(change: str) -> None:
    base = ["model=gpt-4o-mini", "defense=agentsys"]
    assert settings_of([*base, change]).config_hash == settings_of(base).config_hash


def test_cases_that_differ_in_a_release_alone_are_one_row_whatever_fields_it_brought(tmp_path: Path) -> None:
    newer = changed("versions/agentsys", "0.3.0")
    newer["model"] |= {
        "structured": False,
        "text_protocol": "agentdojo",
        "reasoning_effort": None,
        "stop": [],
    }
    keep(tmp_path, "0" * 16, CONFIG, *users(0, 1))
    keep(tmp_path, "1" * 16, newer, *users(2))
    assert names(tmp_path) == [("gpt-4o", "agentsys", ATTACK)]
    keep(tmp_path, "2" * 16, changed("model/text_protocol", "llama3", newer), *users(3))
    assert names(tmp_path) == [
        ("gpt-4o [text_protocol=agentdojo]", "agentsys", ATTACK),
        ("gpt-4o [text_protocol=llama3]", "agentsys", ATTACK),
    ]


def test_a_class_of_the_users_is_never_imported_to_learn_its_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_fence.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    keep(tmp_path, "0" * 16, CONFIG, *users(0))
    keep(tmp_path, "1" * 16, changed("defense/mark", DROPPED), *users(1))
    assert [defense for _, defense, _ in names(tmp_path)] == ["agentsys [mark=^]", "agentsys [mark=not set]"]


def test_rows_of_other_defenses_and_attacks_bear_the_label_of_their_own_settings(tmp_path: Path) -> None:
    """Benign cases, the baseline and each attack have hashes of their own; what they share is one name."""
    for number, temperature in enumerate((0.0, 0.9)):
        config = changed("model/temperature", temperature)
        for at, (defense, attack) in enumerate(
            [("none", "none"), ("agentsys", "none"), ("agentsys", ATTACK)]
        ):
            own = changed("defense", {"_target_": f"agentsys:defense.{defense}"}, config)
            own = changed("attack", {"_target_": f"agentsys:attack.{attack}"}, own)
            keep(tmp_path, f"{number}{at}" * 8, own, *users(number, defense=defense, attack=attack))
    assert names(tmp_path) == sorted(
        (f"gpt-4o [temperature={heat}]", defense, attack)
        for heat in ("0", "0.9")
        for defense, attack in (("none", "none"), ("agentsys", "none"), ("agentsys", ATTACK))
    )


def test_an_attack_that_changed_splits_its_own_row_and_no_other(tmp_path: Path) -> None:
    benign = changed("attack", {"_target_": "agentsys:attack.none"})
    del benign["files"]["attack.file"]
    keep(tmp_path, "0" * 16, benign, *users(0, 1, attack="none"))
    keep(tmp_path, "1" * 16, CONFIG, *users(0))
    keep(tmp_path, "2" * 16, changed("attack/text", "Now."), *users(1))
    keep(tmp_path, "3" * 16, changed("attack/text", "Else."), *users(1, attack="direct"))
    assert [attack for *_, attack in names(tmp_path)] == [
        *("direct", f"{ATTACK} [text=Do it.]", f"{ATTACK} [text=Now.]", "none"),
    ]


def test_seeds_of_other_defenses_are_no_settings_of_one_row(tmp_path: Path) -> None:
    keep(
        tmp_path,
        "0" * 16,
        changed("defense", {"_target_": "agentsys:defense.none"}),
        *users(0, defense="none"),
    )
    keep(tmp_path, "1" * 16, changed("seed", 1), *users(0))
    assert [model for model, *_ in names(tmp_path)] == ["gpt-4o", "gpt-4o"]


def test_two_folders_given_together_are_told_apart_alike(tmp_path: Path) -> None:
    keep(tmp_path / "a", "0" * 16, CONFIG, *users(0, 1))
    keep(tmp_path / "b", "1" * 16, changed("model/temperature", 0.9), *users(1, 2))
    assert [model for model, *_ in names(tmp_path / "a", tmp_path / "b")] == [
        "gpt-4o [temperature=0.9]",
        "gpt-4o [temperature=0]",
    ]
    assert names(tmp_path / "a") == [("gpt-4o", "agentsys", ATTACK)]


def test_settings_that_were_not_kept_are_named_by_their_hashes(tmp_path: Path) -> None:
    keep(tmp_path, "1a2b" * 4, None, *users(0))
    keep(tmp_path, "1a3c" * 4, None, *users(1), *users(1, **BENIGN))
    assert names(tmp_path) == [
        ("gpt-4o", "agentsys", "none"),
        ("gpt-4o [config 1a2b]", "agentsys", ATTACK),
        ("gpt-4o [config 1a3c]", "agentsys", ATTACK),
    ]
    (line,) = read_cases([tmp_path]).mixed_settings
    assert "not kept" in line


def test_a_suite_that_had_other_data_for_some_cases_is_not_one_row(tmp_path: Path) -> None:
    for number, data in enumerate(["aaaa", "aaaa", "bbbb"]):
        case = case_of(user_task_id=f"user_task_{number}")
        store_own(tmp_path, case, config_hash="0" * 16, versions={"data": data})
    store_own(tmp_path, case_of(suite="slack"), config_hash="0" * 16, versions={"data": "cccc"})
    assert [model for model, *_ in names(tmp_path)] == [
        *("gpt-4o", "gpt-4o [data of banking=aaaa]", "gpt-4o [data of banking=bbbb]"),
    ]


@pytest.mark.parametrize(
    "content", ["{", "[]", "null", '{"model": []}', '{"model": {"roles": 3}, "others": {"a": 1}}', "[" * 5000]
)
def test_a_config_that_is_none_costs_no_row(tmp_path: Path, content: str) -> None:
    keep(tmp_path, "0" * 16, CONFIG, *users(0))
    keep(tmp_path, "1" * 16, CONFIG, *users(1))
    (tmp_path / ".agentsys/configs" / f"{'1' * 16}.config").write_text(content)
    assert len(names(tmp_path)) == 2


def test_many_and_long_differences_make_a_short_label_and_no_two_alike(tmp_path: Path) -> None:
    for number in range(3):
        config = deepcopy(CONFIG)
        config["defense"] |= {"prompt": "x" * 500 + str(number), "a": 1, "b": 2, "c": 3, "d": number}
        config["defense"] |= {"a": number, "b": number, "c": number}
        keep(tmp_path, f"{number}" * 16, config, *users(number))
    defenses = [defense for _, defense, _ in names(tmp_path)]
    assert len(set(defenses)) == 3
    assert max(map(len, defenses)) < 120
    assert "x" * 100 not in "".join(defenses)


def run_check(folder: Path) -> Any:
    return CliRunner().invoke(app, ["check", str(folder)])


class Told:
    """A model whose YAML says what happens."""

    def __init__(self, name: str, says: str) -> None:
        self.name, self.says = name, says

    def complete(self, request: ChatRequest) -> ChatReply:
        return ChatReply(assistant(self.says))


def write_model(folder: Path, says: str) -> None:
    path = folder / "conf/model/told.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"_target_: {__name__}.Told\nname: told\nprose_name: Told\nsays: {says}\n")


def run(folder: Path, *overrides: str) -> None:
    words = ["model=told", "benchmark.suites=[slack]", f"logdir={folder / 'runs'}", *overrides]
    prepare_session(words, config_dirs=[folder / "conf"]).execute(Silent())


def test_a_yaml_edited_between_two_commands_gives_two_rows_and_check_says_so(tmp_path: Path) -> None:
    write_model(tmp_path, "Hello")
    run(tmp_path, "user_tasks=[0,1]")
    write_model(tmp_path, "Goodbye")
    run(tmp_path, "user_tasks=[2,3,4]")
    runs = tmp_path / "runs"
    assert [model for model, *_ in names(runs)] == ["told [says=Goodbye]", "told [says=Hello]"]
    for words in (["results", "--format", "csv"], ["results", "--full"], ["results"]):
        shown = CliRunner().invoke(app, [*words, str(runs)]).output
        assert "told [says=Goodbye]" in shown and "told [says=Hello]" in shown, words
    page = run_check(runs)
    assert "two settings" in page.output
    assert "says (Goodbye, Hello)" in page.output or "says (Hello, Goodbye)" in page.output
    assert "nothing was found" not in page.output


def test_a_folder_of_one_setting_is_checked_without_a_word_on_settings(tmp_path: Path) -> None:
    write_model(tmp_path, "Hello")
    run(tmp_path, "user_tasks=[0,1]", "attack=none,direct", "injection_tasks=[1]", "defense=none,delimiters")
    run(tmp_path, "user_tasks=[0,1,2]", "executor.workers=2")
    assert {model for model, *_ in names(tmp_path / "runs")} == {"told"}
    assert "ettings" not in run_check(tmp_path / "runs").output
