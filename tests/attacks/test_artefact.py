"""Artefacts of searches: what is written is read back, and anything else is one clear line."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentsys.attacks.search_attacks import PairAttack, TapAttack
from agentsys.attacks.search_options import Artefact, ArtefactEntry, read_artefact
from agentsys.errors import ConfigError

EMPTY = Artefact(
    attack="pair-transfer",
    mode="transfer",
    benchmark="agentdojo",
    version="v1.2.2",
    model="simulated",
    defense="none",
    entries=(),
)


def entry(text: str, user_task: str | None = None, injection_task: str = "injection_task_0") -> ArtefactEntry:
    return ArtefactEntry(
        suite="banking",
        user_task=user_task,
        injection_task=injection_task,
        text=text,
        success=True,
        attempts=3,
    )


def with_entries(*entries: ArtefactEntry) -> str:
    return json.dumps({**EMPTY.model_dump(), "entries": [one.model_dump() for one in entries]})


def test_the_texts_of_a_newer_search_take_the_place_of_all_of_an_older_one() -> None:
    def several(count: int) -> list[ArtefactEntry]:
        return [entry(f"text {n} of {count}").model_copy(update={"variant": n}) for n in range(count)]

    three = EMPTY.with_search(several(3)).with_search([entry("other", injection_task="injection_task_1")])
    assert (three.format, three.variants) == (2, (0, 1, 2))
    found = three.find_entry("banking", "user_task_9", "injection_task_0", 2)
    assert found is not None
    assert found.text == "text 2 of 3"
    two = three.with_search(several(2))
    assert two.variants == (0, 1)
    assert two.with_search(several(1)).format == 1, "as files of one text per search always were"
    assert b"variant" not in two.with_search(several(1)).as_json()


@pytest.mark.parametrize("attack", [TapAttack, partial(PairAttack, name="pair-per_case", mode="per_case")])
def test_another_attacks_or_modes_artefact_is_refused_as_results_would_bear_the_wrong_name(
    attack: Any, tmp_path: Path
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(EMPTY.with_search([entry("text")]).as_json())
    assert PairAttack(name="pair-transfer", artefact=str(path)).replays
    with pytest.raises(ConfigError, match="holds texts of attack 'pair-transfer'"):
        attack(artefact=str(path))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        (json.dumps({**EMPTY.model_dump(), "format": 3}), "format"),
        (json.dumps({**EMPTY.model_dump(), "entries": [{"suite": "x"}]}), r"entries\.0\.user_task"),
        (with_entries(entry("a"), entry("b")), "two texts for 'banking injection_task_0'; keep one"),
        (with_entries(entry("a")).replace('"a"', '""'), r"entries\.0\.text: String should have at least 1"),
        (with_entries(entry("a")).replace('"a"', r'"\ud800"'), r"entries\.0\.text: .*unicode string"),
        ("[]", "no artefact of a search: Input should be"),
    ],
)
def test_anything_else_is_one_line_with_the_mend(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        read_artefact(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
