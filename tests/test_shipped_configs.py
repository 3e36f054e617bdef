"""Every shipped config names something that exists and says what it is; options fit their dataclass."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import Field

from agentsys.base.config_catalog import find_config_file, list_config_names
from agentsys.base.option_checks import AtLeast0, AtLeast1, check_options
from agentsys.errors import ConfigError
from agentsys.runs.instantiate import instantiate
from agentsys.runs.references import load_defense_config

DOCS = Path(__file__).parents[1] / "docs"
WITH_TARGET = sorted(
    find_config_file(group, name)
    for group in ("defense", "attack", "model", "benchmark")
    for name in list_config_names(group)
)


def short(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def target_of(path: Path) -> tuple[Any, dict[str, Any]]:
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    module, _, name = node["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name), node


@pytest.mark.parametrize("path", [p for p in WITH_TARGET if p.parent.name == "defense"], ids=short)
def test_a_defense_says_what_it_does_in_a_few_sentences_which_are_in_its_docs_page(path: Path) -> None:
    text = instantiate("defense", load_defense_config(path.stem)).description()
    sentences = re.findall(r"[.](?= |$)", text)
    assert 5 <= len(sentences) <= 10, text
    assert f"## {path.stem}\n\n{text}\n" in (DOCS / "defenses.md").read_text("utf-8"), (
        "print the page anew: agentsys list defenses --long --format markdown"
    )


def test_presets_that_differ_in_what_an_attacker_meets_differ_in_what_it_is_told() -> None:
    told = {}
    for name in (
        "agentsys",
        "agentsys_strict",
        "agentsys_no_validator",
        "spotlighting",
        "spotlighting_encoding",
    ):
        target, node = target_of(find_config_file("defense", name))
        told[name] = target(**{key: value for key, value in node.items() if key != "_target_"}).description()
    assert len(set(told.values())) == len(told)
    assert "undeclared keys are cut off" in told["agentsys_strict"]
    assert "keys that nobody declared included" in told["agentsys"]


class Pace(Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass(frozen=True)
class Journey:
    by: Literal["train", "boat"] = "train"
    pace: Pace = Pace.SLOW
    quiet: bool = True
    stops: AtLeast0 = 2
    seats: AtLeast1 | None = None
    warmth: Annotated[float, Field(ge=0, le=1)] = 0.5
    stars: Annotated[int, Field(ge=1, le=3)] = 2
    via: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    number: int = 0


def test_what_is_given_is_taken_and_the_rest_is_the_dataclass_own() -> None:
    options = {"by": "boat", "pace": "fast", "stops": 0, "warmth": 1, "via": {"north": ["Bergen"]}}
    made = check_options(Journey, "trip", options, number=7)
    assert made == Journey("boat", Pace.FAST, stops=0, warmth=1, via={"north": ("Bergen",)}, number=7)
    assert check_options(Journey, "trip", {"pace": Pace.FAST, "seats": None}) == Journey(pace=Pace.FAST)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by": "boot"}, r"^Unknown trip by 'boot'\. Did you mean boat\? Known: boat, train\.$"),
        ({"pace": "fest"}, r"^Unknown trip pace 'fest'\. Did you mean fast\?"),
        ({"quiet": "no"}, "^trip: quiet is 'no'; give true or false.$"),
        ({"stops": -1}, "^trip: stops is -1; give a whole number of at least 0.$"),
        ({"stops": True}, "stops is True"),
        ({"seats": 0}, "^trip: seats is 0; give a whole number of at least 1, or null.$"),
        ({"warmth": float("nan")}, "^trip: warmth is nan; give a number from 0 to 1.$"),
        ({"stars": 4}, "^trip: stars is 4; give a whole number from 1 to 3.$"),
        ({"via": {"north": "Bergen"}}, "^trip: via is .*; give a value of the type object.$"),
        ({"stop": 1}, r"^Unknown trip option 'stop'\. Did you mean stops"),
        ({"number": 3}, "^Unknown trip option 'number'"),
    ],
)
def test_a_slip_is_told_in_one_line_with_the_mend(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        check_options(Journey, "trip", options, number=7)
    assert "\n" not in str(caught.value)
