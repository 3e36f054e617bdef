"""The defense on the simulated model, without key or network: `pytest test_my_defense.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from my_defense import without_tagged

import agentsys

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <X>b</X> c", "a  c"),
        ("a <X>never closed", "a "),
        ("nothing </X> tagged", "nothing </X> tagged"),
    ],
)
def test_tagged_passages_are_cut(text: str, left: str) -> None:
    assert without_tagged(text, "X") == left


def test_a_user_task_is_solved_and_a_known_attack_is_stopped(tmp_path: Path) -> None:
    words = ["model=simulated", "defense=none,my_defense", "attack=none,important_instructions"]
    tasks = ["benchmark.suites=banking", "user_tasks=9", "injection_tasks=3", f"logdir={tmp_path}"]
    run = agentsys.run([*words, *tasks], config_dirs=[HERE / "conf"], plugin_paths=[HERE])
    cases = run.cases()
    defended = cases[cases["defense"] == "my_defense"]
    assert list(defended["utility"]) == [True, True]
    attacked = cases[cases["attack"] != "none"].set_index("defense")["injection_success"]
    assert attacked.to_dict() == {"none": True, "my_defense": False}
