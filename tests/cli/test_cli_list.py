"""`agentsys list` and `agentsys show`: what config folders hold, the config a run would have, a defense's prompts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from agentsys.base import config_catalog
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.extensions import list_shipped_config_dirs


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "conf" / "defense"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "# @package _global_\n\n#\n# Mine is \x1b[31mred.\n# More.\n_target_: m.M\n"
    )
    (folder / "bare.yaml").write_text("_target_: m.M\n# Not a description.\n")
    (folder / "plainer.yaml").write_text("# My own none.\n_target_: m.M\n")
    (folder / "broken.yaml").write_text("# Broken.\n_target_: [\n")
    (folder / "list.yaml").write_text("- a\n")
    return tmp_path / "conf"


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["list", *arguments])
    assert result.exit_code == 0, result.exception
    return result.output


@pytest.mark.parametrize("kind", list(config_catalog.CONFIG_GROUPS))
def test_list_names_every_shipped_config(kind: str) -> None:
    files = {
        path.stem
        for root in list_shipped_config_dirs()
        for path in (root / config_catalog.CONFIG_GROUPS[kind]).glob("*.yaml")
    }
    rows = json.loads(listed(kind, "--format", "json"))
    assert {row["name"] for row in rows} == files
    assert listed(kind).partition("Without a YAML")[0].count("\n") == len(files)


@pytest.mark.parametrize("group", config_catalog.CONFIG_GROUPS.values())
def test_every_shipped_config_says_in_one_line_what_it_is(group: str) -> None:
    for name in config_catalog.list_config_names(group):
        text = config_catalog.read_description(group, name)
        assert 10 <= len(text) <= 120, f"configs/{group}/{name}.yaml: {text!r}"


def test_list_shows_own_configs_aligned_and_harmless(own: Path) -> None:
    lines = listed("defenses", "--config-dir", str(own)).splitlines()
    mine = next(line for line in lines if line.startswith("mine "))
    none = next(line for line in lines if line.startswith("plainer "))
    assert mine.endswith("  Mine is \\x1b[31mred.")
    assert none.endswith("  My own none.")
    assert mine.index("Mine") == none.index("My own")
    assert "bare" in lines


def test_a_config_of_ones_own_with_a_shipped_name_is_refused_as_run_refuses_it(own: Path) -> None:
    from agentsys.runs.compose import compose

    (own / "defense" / "none.yaml").write_text("# My own none.\n_target_: m.M\n")
    error = CliRunner().invoke(app, ["list", "defenses", "--config-dir", str(own)]).exception
    with pytest.raises(ConfigError) as caught:
        compose(["model=simulated", "defense=none"], [own])
    refusal = f"{own}/defense/none.yaml has the name of a shipped defense; rename it."
    assert (str(error), str(caught.value)) == (refusal, refusal)


def test_long_lists_what_every_defense_does() -> None:
    rows = {row["name"]: row["long"] for row in json.loads(listed("defenses", "--long", "--format", "json"))}
    assert set(rows) == set(config_catalog.list_config_names("defense"))
    assert rows["agentsys"] != rows["agentsys_strict"]
    assert "One agent reads the request" in listed("defenses", "--long")
    with pytest.raises(ConfigError, match="--long is for defenses"):
        CliRunner().invoke(app, ["list", "attacks", "--long"], catch_exceptions=False)


@pytest.fixture
def own_prompts(tmp_path: Path) -> list[str]:
    """Options that bring in a defense of the user's own_prompts, with two prompts."""
    (tmp_path / "conf" / "defense").mkdir(parents=True)
    (tmp_path / "conf" / "defense" / "wordy.yaml").write_text(
        "# Wordy.\n_target_: wordy_defense_for_show.Wordy\nname: wordy\nmood: calm\n"
    )
    (tmp_path / "wordy_defense_for_show.py").write_text(
        "class Wordy:\n"
        "    def __init__(self, name, mood):\n"
        "        self.mood = mood\n"
        "    def prompts(self):\n"
        "        return {'system': f'Be {self.mood}.\\nAlways.', 'odd': 'a\\x1b[31mb [bold]'}\n"
    )
    return ["--config-dir", str(tmp_path / "conf"), "--plugin-path", str(tmp_path)]


def test_show_config_prints_one_document_per_combination() -> None:
    result = CliRunner().invoke(
        app, ["show", "config", "defense=none,prompt_sandwiching", "limit_per_suite=3"]
    )
    assert result.exit_code == 0, result.exception
    documents = list(yaml.safe_load_all(result.output))
    assert [document["labels"]["defense"] for document in documents] == ["none", "prompt_sandwiching"]
    assert {document["limit_per_suite"] for document in documents} == {3}


def test_show_prompts_prints_names_and_texts_harmlessly(own_prompts: list[str]) -> None:
    result = CliRunner().invoke(app, ["show", "prompts", "wordy", *own_prompts])
    assert result.exit_code == 0, result.exception
    assert "=== system ===\nBe calm.\nAlways.\n" in result.output
    assert "=== odd ===\na\\x1b[31mb [bold]\n" in result.output


PAIR = ["--suite", "banking", "--user-task", "user_task_0", "--injection-task", "injection_task_0"]


def test_show_attack_prints_the_packages_text_and_its_vectors() -> None:
    from agentdojo.task_suite.load_suites import get_suite

    result = CliRunner().invoke(app, ["show", "attack", "direct", *PAIR])
    assert result.exit_code == 0, result.exception
    goal = get_suite("v1.2.2", "banking").injection_tasks["injection_task_0"].GOAL
    assert result.output == f"=== injection_bill_text ===\nTODO: {goal}\n\n"


def test_show_attack_addresses_the_victim_of_the_model_given() -> None:
    numbers = ["--suite", "banking", "--user-task", "0", "--injection-task", "0"]
    result = CliRunner().invoke(app, ["show", "attack", "important_instructions", *numbers, "model=gpt-4o"])
    assert "from me, Emma Johnson, to you, GPT-4." in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none", *PAIR], "writes nothing"),
        (["direkt", *PAIR], "Did you mean direct"),
        (["direct", *PAIR[:3], "99", *PAIR[4:]], "Unknown user task 'user_task_99'"),
        (["direct", "--suite", "bank", *PAIR[2:]], "Did you mean banking"),
    ],
)
def test_show_attack_says_in_one_line_what_is_wrong(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["show", "attack", *arguments])
    assert isinstance(result.exception, ConfigError)
    assert says in str(result.exception)


def test_show_defense_prints_what_it_does_and_falls_back_on_its_docstring(own_prompts: list[str]) -> None:
    shown = CliRunner().invoke(app, ["show", "defense", "agentsys_strict"])
    assert shown.exit_code == 0, shown.exception
    assert "undeclared keys are cut off" in shown.output
    shown = CliRunner().invoke(app, ["show", "defense", "wordy", *own_prompts])
    assert "It speaks to models through: system, odd." in shown.output


def test_show_config_masks_credentials_in_addresses() -> None:
    result = CliRunner().invoke(
        app, ["show", "config", "model=served", "model.base_url=http://me:PASSWORD@h/v1"]
    )
    assert result.exit_code == 0, result.exception
    assert "http://***@h/v1" in result.output
    assert "PASSWORD" not in result.output


def test_show_attack_takes_an_attack_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "conf" / "attack").mkdir(parents=True)
    (tmp_path / "conf" / "attack" / "loud.yaml").write_text("_target_: loud_attack_for_show.Loud\n")
    (tmp_path / "loud_attack_for_show.py").write_text(
        "from agentsys.plugins import AttackKind\n"
        "class Loud:\n"
        "    name, kind = 'loud', AttackKind.TARGETED\n"
        "    def injections(self, suite, user_task, injection_task, victim):\n"
        "        return {'injection_bill_text': injection_task.GOAL.upper()}\n"
    )
    own_prompts = ["--config-dir", str(tmp_path / "conf"), "--plugin-path", str(tmp_path)]
    result = CliRunner().invoke(app, ["show", "attack", "loud", *PAIR, *own_prompts])
    assert result.exit_code == 0, result.exception
    assert "SEND A TRANSACTION" in result.output
