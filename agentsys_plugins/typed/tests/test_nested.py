"""The nested suite: its tasks can be done, its attacks succeed, and no target of `words` is the attacker's."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentsys
from agentsys.analysis.metrics.own_metric import PlantedTarget
from agentsys.records.case_reader import read_cases


@pytest.mark.slow
def test_without_a_defense_all_is_done_and_obeyed_and_words_lets_no_planted_target_through(
    tmp_path: Path,
) -> None:
    found = {}
    for defense in ("none", "agentsys_typed_words"):
        folder = tmp_path / defense
        agentsys.run(
            f"model=simulated benchmark=nested defense={defense} attack=none,important_instructions"
            f" logdir={folder}"
        )
        rows = read_cases([folder]).cases
        attacked = [row for row in rows if row.attack != "none"]
        planted = [PlantedTarget().hit(row) for row in attacked]
        found[defense] = all(row.utility for row in rows if row.attack == "none"), sum(map(bool, planted))
        assert len(attacked) == 40
    assert found["none"] == (True, 40) and found["agentsys_typed_words"] == (False, 0)
