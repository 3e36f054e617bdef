"""Overrides and presets become settings; a slip becomes one line that says what to type."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from agentsys.base.config_catalog import list_config_names
from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dir
from agentsys.runs.compose import compose
from agentsys.runs.settings import Settings, strip_address

EXPERIMENTS = sorted(path.stem for path in (shipped_config_dir() / "experiment").glob("*.yaml"))

QUICK = ("quickstart", "rivals", "table1")
"""Presets that are composed by the fast tests, too."""
NEEDY = {
    "litellm": "model.model_id=x",
    "template": "attack.template=x",
    "injection_round": "attack.round=2",
    "cached": f"attack.file={__file__}",
}
"""Choices that cannot be made without one more setting."""


def test_comma_lists_sweep_into_every_combination() -> None:
    found = compose(["defense=none,agentsys", "attack=none,direct", "limit_per_suite=3"])
    labels = [(s.labels["defense"], s.labels["attack"]) for s in found]
    assert labels == [("none", "none"), ("none", "direct"), ("agentsys", "none"), ("agentsys", "direct")]
    assert {s.limit_per_suite for s in found} == {3}


def test_how_a_model_is_reached_changes_neither_label_nor_hash() -> None:
    (here,) = compose(["model=gpt-4o"])
    (there,) = compose(["model=gpt-4o", "model.timeout_s=7", "model.api_key_env=MINE"])
    assert (here.labels, here.config_hash) == (there.labels, there.config_hash)


def test_how_much_a_model_thinks_stands_in_its_label_and_two_efforts_have_two_hashes() -> None:
    (plain,) = compose(["model=gpt-5.1"])
    (more,) = compose(["model=gpt-5.1", "model.reasoning_effort=high"])
    assert plain.labels["model"] == "gpt-5.1+reasoning_effort=none"
    assert more.labels["model"] == "gpt-5.1+reasoning_effort=high"
    assert plain.config_hash != more.config_hash
    labels = {name: compose([f"model={name}"])[0].labels["model"] for name in THINKERS}
    assert labels == {name: f"{name}+{stated}" for name, stated in THINKERS.items()}


THINKERS = {
    "claude-haiku-4.5": "thinking=disabled",
    "claude-opus-4.8": "effort=high+thinking=adaptive",
    "gemini-3-flash": "thinking_level=high",
    "gemini-2.5-flash": "thinking_budget=-1",
    "deepseek-v4-flash": "extra_body.thinking.type=enabled",
    "qwen3-32b": "extra_body.chat_template_kwargs.enable_thinking=False",
}


def test_credentials_in_an_address_are_no_part_of_what_is_kept_or_compared() -> None:
    address = "model.base_url='https://{}GPU.example:8443/v1/?key={}'"
    found = [
        compose(["model=qwen2.5-7b-instruct", address.format(user, key)])[0]
        for user, key in [("me:hunter2@", "sesame"), ("you:secret@", "k2"), ("", "")]
    ]
    assert len({one.config_hash for one in found}) == 1
    assert found[0].identity["model"]["base_url"] == "https://gpu.example:8443/v1"


def test_a_users_choice_may_stand_on_a_shipped_one_and_choose_in_another_group(tmp_path: Path) -> None:
    for name, text in {
        "defense/mine.yaml": "defaults: [agentsys]\nmax_depth: 9\n",
        "attack/mine.yaml": "# @package _global_\n"
        "defaults: [override /defense: mine]\nattack: {_target_: x.Y}\n",
        "more/a.yaml": "x: 1\n",
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (mine,) = compose(["attack=mine"], [tmp_path])
    (shipped,) = compose(["defense=agentsys"])
    assert mine.defense == {**shipped.defense, "max_depth": 9}
    assert (mine.labels["defense"], mine.attack) == (shipped.labels["defense"], {"_target_": "x.Y"})
    assert compose(["attack=mine", "defense=agentsys"], [tmp_path])[0].defense == shipped.defense
    with pytest.raises(ConfigError, match="more"):  # chosen, but no setting of ours
        compose(["+more=a"], [tmp_path])


@pytest.mark.parametrize("url", ["me:hunter2@host/v1", "//me:hunter2@host/v1", "http://[me:hunter2@host"])
def test_what_is_kept_of_an_odd_address_holds_no_password(url: str) -> None:
    assert "hunter2" not in strip_address(url)


def store_run(folder: Path, text: str, attack: str = "none") -> None:
    path = folder / "slack/user_task_0" / attack / "none.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_replay_is_labelled_by_its_pipeline_wherever_the_folder_lies(tmp_path: Path) -> None:
    for root in ("here", "there"):
        store_run(tmp_path / root / "gpt-4o-mini-2024-07-18", "{}")
    store_run(tmp_path / "there" / "gpt-4o-2024-05-13", "{}")
    one, two, other = compose(["model=replay", f"model.traces={tmp_path / 'here'}"]) + compose(
        [
            "model=replay",
            f"model.traces={tmp_path / 'there'}",
            "model.pipeline=gpt-4o-mini-2024-07-18,gpt-4o-2024-05-13",
        ]
    )
    assert one.labels["model"] == "replay:gpt-4o-mini-2024-07-18"
    assert (one.labels, one.config_hash) == (two.labels, two.config_hash)
    assert other.labels["model"] == "replay:gpt-4o-2024-05-13"


def test_a_replay_depends_on_the_recorded_runs_of_its_attack_and_on_no_others(tmp_path: Path) -> None:
    folder = tmp_path / "gpt-4o-mini-2024-07-18"

    def now() -> str:
        return compose(["model=replay", f"model.traces={folder}"])[0].config_hash

    store_run(folder, "{}")
    before = now()
    store_run(folder, "{}", attack="direct")
    assert now() == before
    store_run(folder, "{} ")
    assert now() != before


def test_the_content_of_a_file_that_an_option_names_is_part_of_what_a_case_depends_on(tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    (tmp_path / "defense").mkdir()
    (tmp_path / "defense/mine.yaml").write_text(f"_target_: x.Y\nlists: {{words: {rules}}}\n")

    def now() -> str:
        return compose(["defense=mine"], [tmp_path])[0].config_hash

    missing = now()
    rules.write_text("one")
    before = now()
    assert before != missing
    rules.write_text("two")
    assert now() != before


@pytest.mark.parametrize(
    "first", [["defense=mine"], ["defense=mine", "limit_per_suite=1"], ["defense=mine", "defense.words=9"]]
)
def test_a_yaml_edited_between_two_compositions_is_read_again(tmp_path: Path, first: list[str]) -> None:
    mine = tmp_path / "defense/mine.yaml"
    mine.parent.mkdir()
    mine.write_text("_target_: x.Y\nwords: 3\n")
    compose(first, [tmp_path])
    mine.write_text("_target_: x.Y\nwords: 400\n")
    (same,) = compose(["defense=mine", "defense.words=400"], [tmp_path])
    (other,) = compose(["defense=mine", "defense.words=3"], [tmp_path])
    assert (same.labels["defense"], other.labels["defense"]) == ("mine", "mine+words=3")


def test_a_model_that_plays_a_role_is_part_of_what_a_case_depends_on(tmp_path: Path) -> None:
    mine = tmp_path / "model/mine.yaml"
    mine.parent.mkdir()
    shipped = (shipped_config_dir() / "model/simulated.yaml").read_text()

    def now(text: str) -> str:
        mine.write_text(text)
        overrides = ["model=gpt-4o", "model.roles.validator=mine", "defense=agentsys"]
        return compose(overrides, [tmp_path])[0].config_hash

    assert now(shipped) == now(f"{shipped}\n# a remark\n")
    assert now(shipped) != now(shipped.replace("susceptibility: 1.0", "susceptibility: 0.5"))


@pytest.mark.parametrize(
    ("overrides", "label"),
    [
        (["attack=pair"], "pair-transfer-task"),
        (["attack=pair", "attack.mode=per_case"], "pair-per_case-task"),
        (["attack=pair", "attack.knowledge=full"], "pair-transfer-full"),
        (["attack=tap", "attack.mode=per_case", "attack.width=2"], "tap-per_case-task+width=2"),
        (["attack=pair", "attack.attacker=gpt-4o"], "pair-transfer-task+attacker=gpt-4o"),
        (["attack=pair", "attack.name=mine", "attack.mode=per_case"], "mine+mode=per_case"),
    ],
)
def test_an_option_that_is_in_the_name_is_not_repeated(overrides: list[str], label: str) -> None:
    assert compose(overrides)[0].labels["attack"] == label


def test_an_artefact_is_labelled_by_its_content_not_by_its_place(tmp_path: Path) -> None:
    for name, content in {"a.json": "1", "b.json": "1", "c.json": "2"}.items():
        (tmp_path / name).write_text(content)
    found = [
        compose(["attack=pair", f"attack.artefact={tmp_path / name}"])[0]
        for name in ("a.json", "b.json", "c.json")
    ]
    labels = [one.labels["attack"] for one in found]
    assert labels[0] == labels[1] != labels[2]
    assert all(re.fullmatch(r"pair-transfer-task\+artefact=[0-9a-f]{8}", label) for label in labels)
    assert found[0].config_hash == found[1].config_hash != found[2].config_hash
    with pytest.raises(ConfigError, match=r"attack\.artefact .*cannot be read"):
        compose(["attack=pair", "attack.artefact=/nowhere.json"])


def test_the_seed_is_part_of_what_a_case_depends_on() -> None:
    assert compose(["seed=1"])[0].config_hash != compose(["seed=2"])[0].config_hash


def test_a_preset_with_a_setting_of_earlier_versions_is_refused_and_stored_settings_are_read(
    tmp_path: Path,
) -> None:
    preset = tmp_path / "experiment/mine.yaml"
    preset.parent.mkdir()
    preset.write_text("# @package _global_\nlimit: 4\n")
    with pytest.raises(ConfigError, match=r"^limit is limit_per_suite now: limit_per_suite=4$"):
        compose(["experiment=mine"], [tmp_path])
    (today,) = compose(["limit_per_suite=4"])
    stored = today.model_dump(exclude={"limit_per_suite"}) | {"limit": 4}
    assert Settings.model_validate(stored) == today


@pytest.mark.usefixtures("each_choice_once")
@pytest.mark.parametrize(
    "experiment",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EXPERIMENTS],
)
def test_every_preset_composes(experiment: str) -> None:
    assert compose([f"+experiment={experiment}", "model=simulated"])


@pytest.mark.parametrize(
    "group", ["model", "benchmark", *(pytest.param(g, marks=pytest.mark.slow) for g in ("defense", "attack"))]
)
def test_every_shipped_choice_composes(group: str, tmp_path: Path) -> None:
    store_run(tmp_path / "gpt-4o", "{}")
    needy = {**NEEDY, "replay": f"model.traces={tmp_path}"}
    names = list_config_names(group)
    free = [name for name in names if name not in needy]
    assert [
        s.labels.get(group, name)
        for s, name in zip(compose([f"{group}={','.join(free)}"]), free, strict=True)
    ]
    for name in set(names) & set(needy):
        (found,) = compose([f"{group}={name}", needy[name]])
        assert "_target_" in getattr(found, group)


@pytest.mark.parametrize(
    "override",
    [
        '+model.extra_body={user: "${oc.env:SECRETX}"}',
        '+model.extra_body={a: [{b: "x ${ oc.env : SECRETX,none}"}]}',
        "model.name=${oc.env:SECRETX}",
        'attack.template="Do {goal} ${oc.env:SECRETX}"',
        "model.name=a${oc.decode:${oc.env:SECRETX}}",
        'model.model_id="${oc.env:SECRETX}",b',
    ],
)
def test_an_environment_variable_goes_into_no_setting_that_is_stored(
    override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETX", "sk-TOPSECRET-999")
    with pytest.raises(ConfigError) as caught:
        compose(["model=served", "attack=template", "attack.template=x", override])
    assert "SECRETX" in str(caught.value)
    assert "sk-TOPSECRET" not in str(caught.value)


def test_an_attack_that_another_wraps_reads_no_environment_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRETX", "sk-TOPSECRET-999")
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "mine.yaml").write_text(
        '_target_: agentsys.attacks.text_attacks.TemplateAttack\nname: "${oc.env:SECRETX}"\ntemplate: x\n'
    )
    with pytest.raises(ConfigError, match="SECRETX"):
        compose(["attack=injection_round", "attack.round=2", "attack.base=mine"], [tmp_path])


def test_credentials_in_an_address_stand_in_no_label() -> None:
    (found,) = compose(["+defense.server=http://me:secret@host/v1"])
    assert found.labels["defense"].endswith("+server=http://***@host/v1")
    assert "secret" not in str(found.identity)


def test_a_pattern_chooses_among_names(tmp_path: Path) -> None:
    (tmp_path / "defense").mkdir()
    (tmp_path / "defense" / "agentsys_lone.yaml").write_text("_target_: x.Y\n")
    found = {s.labels["defense"] for s in compose(["defense=glob(agentsys_l*)"], [tmp_path])}
    assert found == {"agentsys_lean", "agentsys_lone"}
    beside = [s.labels["defense"] for s in compose(["defense=none,glob(agentsys_no_*),drift"])]
    assert beside[0] == "none" and beside[-1] == "drift"
    assert {"agentsys_no_validator", "agentsys_no_sanitizer"} <= set(beside[1:-1])
    fewer = {s.labels["defense"] for s in compose(["defense=glob(agentsys_no_*,exclude=*_no_v*)"])}
    assert fewer == {"agentsys_no_isolation", "agentsys_no_sanitizer"}


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("defense=glob(agentsyx*)", "Unknown defense 'agentsyx*'. Did you mean agentsys"),
        ("defense=none,agentsy", "Unknown defense 'agentsy'"),
        ("defense=[none", "Override not understood"),
        ("defens=none", "Did you mean defense"),
        ("executor.worker=2", "Did you mean executor.workers"),
        ("executor.workers=0", "Setting 'executor.workers' = 0"),
        ("model=replay", "'replay' needs model.traces=..."),
        ("+limit=1,2", "limit is limit_per_suite now: limit_per_suite=1,2"),
        ("limit_per_suite=abc", "Setting 'limit_per_suite' = 'abc'"),
        ("limit_per_suite=glob(3*)", "a pattern chooses among model, defense"),
        ("limit_per_suite=interval(1,3)", "Write commas: limit_per_suite=A,B"),
        ("experiment=table99", "Unknown experiment 'table99'"),
    ],
)
def test_a_slip_is_one_line_with_the_mend(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose([override])
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["Do it = now", "a (b) c", "it's a=b", "x=1"])
def test_a_value_that_needs_quotes_is_shown_as_the_shell_takes_it(value: str) -> None:
    override = f"attack.text={value}"
    with pytest.raises(ConfigError) as caught:
        compose(["attack=template", override])
    (typed,) = shlex.split(str(caught.value).partition("quotes of its own. Write ")[2])
    assert OverridesParser.create().parse_override(typed).value() == value


VALUES = (
    *(
        None,
        True,
        0.5,
        7,
        "null",
        "true",
        "7",
        "a=b",
        "two (signs",
        "it's",
        "a, b",
        "[x",
        "${odd",
        "",
        " led",
        "ä:b",
    ),
    *(["a=b", None], {"key": "a (b", "other": None}, "line\nbreak", "back\\slash"),
)


@pytest.mark.parametrize("value", [value for value in VALUES if value != "${odd"])
def test_a_value_in_a_presets_sweep_is_what_stands_in_its_yaml(tmp_path: Path, value: Any) -> None:
    for group, content in (
        ("defense/mine.yaml", {"_target_": "baselines.none.NoDefense", "said": "unset"}),
        ("experiment/mine.yaml", {"sweep": {"defense": ["mine"], "defense.said": [value]}}),
    ):
        path = tmp_path / group
        path.parent.mkdir()
        head = "# @package _global_\n" if "experiment" in group else ""
        path.write_text(head + yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    (settings,) = compose(["experiment=mine"], [tmp_path])
    assert settings.defense["said"] == value
    assert type(settings.defense["said"]) is type(value)


@pytest.mark.parametrize(
    ("typed", "said", "label"),
    [("null", None, "mine"), ("'null'", "null", "mine+said=null")],
)
def test_null_typed_on_the_command_line_is_null_and_quoted_it_is_a_text(
    tmp_path: Path, typed: str, said: str | None, label: str
) -> None:
    mine = tmp_path / "defense/mine.yaml"
    mine.parent.mkdir()
    mine.write_text("_target_: baselines.none.NoDefense\nsaid: null\n")
    (settings,) = compose(["defense=mine", f"defense.said={typed}"], [tmp_path])
    assert settings.defense["said"] == said and type(settings.defense["said"]) is type(said)
    assert settings.labels["defense"] == label
