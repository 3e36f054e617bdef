"""The page about Progent says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from agentsys.extensions import shipped_config_dir
from baselines.progent.defense import Progent
from baselines.progent.policy_model import TEMPERATURE_STEP
from baselines.progent.progent_rules import ProgentSettings

PAGE = (Path(__file__).parents[3] / "docs" / "baselines" / "progent.md").read_text(encoding="utf-8")
PRESETS = sorted(path.stem for path in (shipped_config_dir() / "defense").glob("progent*.yaml"))


def preset(name: str) -> dict[str, object]:
    node = yaml.safe_load((shipped_config_dir() / "defense" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in node.items() if key != "_target_"}


def table_of(heading: str) -> dict[str, str]:
    """First cell -> second cell of the table under a heading's presets, options or fixes."""
    found = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE, re.M)
    rows = [line.strip("|").split(" | ") for line in found[0].splitlines()]
    return {row[0].strip().strip("`"): row[1].strip().strip("`") for row in rows}


def test_every_preset_and_option_is_on_the_page() -> None:
    assert set(table_of("preset")) == set(PRESETS)
    options = table_of("option")
    assert set(options) - {"attempts"} == set(preset("progent")) - {"name", "compat"}
    for name, value in preset("progent").items():
        if name in options:
            assert yaml.safe_load(options[name]) == value
    attempts = [round(TEMPERATURE_STEP * place, 1) for place in range(ProgentSettings().attempts)]
    assert (
        options["attempts"]
        == f"{len(attempts)}, at temperatures {attempts[0]}, {attempts[1]} to {attempts[-1]}"
    )


def test_the_rules_that_the_page_shows_are_read() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.S)
    defense = Progent(**yaml.safe_load(shown))
    assert set(defense.settings.rules) == {"send_money", "read_file"}
    assert not defense.settings.generate


def test_base_rules_are_counted_as_the_page_says() -> None:
    folder = Path(__file__).parents[3] / "baselines" / "progent" / "base_rules"
    (text,) = re.findall(r"One file per suite.*?A suite without a file", PAGE, re.S)
    said = sorted(int(number) for number in re.findall(r"(?<=[a-zA-Z] )\d+", text))
    assert said == sorted(len(yaml.safe_load(path.read_text())) for path in folder.glob("*.yaml"))


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_texts_are_our_own_and_complete(name: str) -> None:
    defense = Progent(**preset(name))  # type: ignore[arg-type]
    texts = defense.prompts()
    assert ("update" in texts) is defense.settings.update
    assert "{query}" in texts["refused"] and "{cause}" in texts["refused"]
    hinted = "two tools" in texts["generate"]
    assert hinted is (name == "progent_asb_hinted")
