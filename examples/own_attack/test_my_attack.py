"""The attack on the simulated model, without key or network: `pytest test_my_attack.py`."""

from __future__ import annotations

from pathlib import Path

import agentsys

HERE = Path(__file__).parent


def test_an_agent_without_a_defense_obeys_and_a_record_holds_the_text(tmp_path: Path) -> None:
    words = ["model=simulated", "defense=none", "attack=my_attack", "benchmark.suites=banking"]
    tasks = ["user_tasks=9", "injection_tasks=3", f"logdir={tmp_path}"]
    run = agentsys.run([*words, *tasks], config_dirs=[HERE / "conf"], plugin_paths=[HERE])
    [case] = run.cases().to_dict("records")
    assert (case["attack"], case["exposed_raw"], case["injection_success"]) == ("my_attack", True, True)
    assert "asks you: " in Path(case["source"]).read_text(encoding="utf-8")
