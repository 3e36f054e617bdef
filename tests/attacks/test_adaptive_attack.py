"""The adaptive attack's text survives AgentDojo's substitution and says what the paper prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import Silent, records_in

from agentsys.attacks.text_attacks import IN_FIELD_OPENING, AdaptiveAttack
from agentsys.defense import simulated_agentsys as simulated_worker
from agentsys.errors import ConfigError
from agentsys.runs.run_session import prepare_session


@pytest.mark.parametrize(("defense", "shown"), [("agentsys", True), ("agentsys_strict", False)])
def test_the_record_says_that_the_payload_was_shown_where_a_gate_let_the_extra_key_through(
    defense: str, shown: bool, tmp_path: Path
) -> None:
    # A hostile reader would lie in the declared fields, too.
    model = ["model=simulated", "model.reader=literal"]
    plan = [*model, f"defense={defense}", "attack=adaptive", "benchmark.suites=[banking]"]
    one_case = ["user_tasks=[user_task_0]", "injection_tasks=[injection_task_0]", f"logdir={tmp_path}"]
    prepare_session([*plan, *one_case]).execute(Silent())
    (record,) = records_in(tmp_path).values()
    exposure = record["agentsys"]["exposure"]
    assert exposure["exposed_raw"]
    assert (exposure["exposed_shown"], record["security"]) == (shown, shown)


@pytest.mark.parametrize("defense", ["agentsys", "agentsys_strict"])
def test_a_payload_posed_as_a_declared_value_passes_every_gate_on_names_and_types(
    defense: str, tmp_path: Path
) -> None:
    plan = ["model=simulated", f"defense={defense}", "attack=adaptive_in_field", "benchmark.suites=[banking]"]
    one_case = ["user_tasks=[user_task_0]", "injection_tasks=[injection_task_0]", f"logdir={tmp_path}"]
    prepare_session([*plan, *one_case]).execute(Silent())
    (record,) = records_in(tmp_path).values()
    exposure = record["agentsys"]["exposure"]
    assert (exposure["exposed_shown"], record["security"]) == (True, True)
    assert exposure["read_by"] == ["worker", "main"]


def test_the_simulated_worker_knows_the_words_that_the_attack_opens_with() -> None:
    assert simulated_worker.IN_FIELD_OPENING == IN_FIELD_OPENING


def test_an_unknown_form_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'in-field'.*in_field"):
        AdaptiveAttack("in-field")
