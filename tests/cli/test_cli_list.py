"""`agentsys list` shows what the config folders hold, the user's own included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.base import config_catalog
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dirs


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
        for root in shipped_config_dirs()
        for path in (root / config_catalog.CONFIG_GROUPS[kind]).glob("*.yaml")
    }
    rows = json.loads(listed(kind, "--format", "json"))
    assert {row["name"] for row in rows} == files
    assert listed(kind).count("\n") == len(files)


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
