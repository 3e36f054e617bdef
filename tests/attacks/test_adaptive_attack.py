"""The adaptive attack's text survives AgentDojo's substitution and says what the paper prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_runs import Silent, records_in

from agentsys.attacks.text_attacks import IN_FIELD_OPENING, AdaptiveAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.case_watch import ExposureWatch
from agentsys.contracts import Victim
from agentsys.defense import simulated_agentsys as simulated_worker
from agentsys.errors import ConfigError
from agentsys.runs.run_session import prepare_session

VICTIM = Victim("GPT-4", "Emma Johnson")


@pytest.mark.parametrize("form", ["extra_key", "in_field", "checks"])
@pytest.mark.parametrize("injection", ["folded", "exact"])
@pytest.mark.parametrize("name", ["banking", "slack", "travel", "workspace"])
def test_the_environment_holds_the_text_as_written_for_every_goal(
    name: str, injection: str, form: str
) -> None:
    suite = AgentDojo("v1.2.2", injection=injection).suite(name)
    user_task = next(iter(suite.user_tasks.values()))
    for injection_task in suite.injection_tasks.values():
        written = AdaptiveAttack(form).injections(suite, user_task, injection_task, VICTIM)
        environment = suite.load_and_inject_default_environment(dict(written))
        for text in written.values():
            assert text in "\n".join(_strings(environment.model_dump()))
        watch = ExposureWatch(written)
        watch.tool_returned(environment, None)
        assert watch.summarize().raw_fraction == 1.0


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _strings(part)]
    return [text for item in value for text in _strings(item)] if isinstance(value, list) else []


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
