"""A profile's file: what is no profile is refused in one line, and what was written is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agentsys.errors import ConfigError
from agentsys.models.simulated.victim.profile import (
    MOST_BYTES,
    checked_profile,
    load_profile,
    profile_path,
    shipped_profiles,
)
from agentsys.victims.fit import profile_yaml


def shipped() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load(profile_path("gpt-4o-mini").read_text(encoding="utf-8"))
    return read


def test_the_shipped_profile_names_its_source_and_carries_its_validation() -> None:
    assert shipped_profiles() == ["gpt-4o-mini"]
    profile = load_profile("gpt-4o-mini")
    assert "MIT" in profile.fitted_to.source
    assert profile.label == "simulated, fitted to gpt-4o-mini (629 cases, 55648d15)"
    assert profile.validation.keys() == {"user", "injection", "suite"}
    assert profile_path("gpt-4o-mini").stat().st_size < MOST_BYTES


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    profile = load_profile("gpt-4o-mini")
    path = tmp_path / "again.yaml"
    path.write_text(profile_yaml(profile), encoding="utf-8")
    assert load_profile(str(path)) == profile


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"victim": 2}, "newer agentsys"),
        ({"victim": None}, "no profile"),
        ({"colour": "blue"}, "colour: Extra inputs"),
        ({"name": "a b"}, "name: String should match"),
        ({"attacks": {}}, "attacks: Dictionary should have at least 1"),
        ({"without_exposure": [1, 2, 3]}, "without_exposure"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked_profile(shipped() | change, "mine.yaml")


def test_numbers_that_are_none_are_refused() -> None:
    read = shipped()
    read["obey"]["fixed"]["intercept"] = float("nan")
    with pytest.raises(ConfigError, match=r"obey\.fixed\.intercept: .*finite"):
        checked_profile(read, "mine.yaml")
    read = shipped()
    del read["obey"]["effects"]["tool"]
    with pytest.raises(ConfigError, match="obey lacks factor tool"):
        checked_profile(read, "mine.yaml")


def test_names_and_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean gpt-4o-mini\?"):
        load_profile("gpt-4o-min")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_profile(str(tmp_path / "none.yaml"))
    large = tmp_path / "large.yaml"
    large.write_text("#" * (MOST_BYTES + 1), encoding="utf-8")
    with pytest.raises(ConfigError, match="at most 60000"):
        load_profile(str(large))
    large.write_text("a: [", encoding="utf-8")
    with pytest.raises(ConfigError, match="no YAML"):
        load_profile(str(large))
