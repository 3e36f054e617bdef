"""The metric on four cases of the simulated model, without key or network: `pytest test_my_metric.py`."""

from __future__ import annotations

from pathlib import Path

from my_metric import SafeAndUseful

import agentsys


def test_it_counts_attacked_cases_in_which_the_user_was_served_and_the_attacker_was_not(
    tmp_path: Path,
) -> None:
    words = ["model=simulated", "defense=none,agentsys", "attack=none,important_instructions"]
    tasks = ["benchmark.suites=banking", "user_tasks=9", "injection_tasks=3", f"logdir={tmp_path}"]
    agentsys.run([*words, *tasks])
    frame = agentsys.results(tmp_path, metrics=[SafeAndUseful()]).frame
    own = frame[(frame["metric"] == SafeAndUseful.name) & (frame["suite"] == "banking")]
    assert own.set_index("defense")["value_fraction"].to_dict() == {"none": 0.0, "agentsys": 1.0}
