"""PAIR through the real OpenAI SDK: attacker and target are different models on servers of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from served_faults import serve
from small_runs import Silent, records_in

from agentsys.extensions import shipped_config_dir
from agentsys.records.case import ATTEMPTS


@pytest.mark.slow
@pytest.mark.parametrize(
    "named_by", ["attack.attacker=other", pytest.param("+model.roles.attacker=other", marks=pytest.mark.slow)]
)
def test_attacker_and_target_are_asked_each_at_its_own_server(tmp_path: Path, named_by: str) -> None:
    from agentsys.runs.run_session import prepare_session
    from agentsys.serve_agent.agent_server import build_served_model

    victim = build_served_model(["model.susceptibility=0.5"])
    with (
        serve(victim) as target,
        serve(build_served_model(["seed=3"])) as attacker,
    ):
        shipped = (shipped_config_dir() / "model/served.yaml").read_text()
        (tmp_path / "conf/model").mkdir(parents=True)
        (tmp_path / "conf/model/other.yaml").write_text(
            shipped.replace("name: served", "name: other")
            .replace("model_id: simulated", "model_id: the-attacker")
            .replace("http://127.0.0.1:8321/v1", attacker.openai_base_url)
        )
        session = prepare_session(
            [
                "model=served",
                f"model.base_url={target.openai_base_url}",
                "attack=pair",
                named_by,
                "attack.feedback=defense_aware",
                "attack.depth=2",
                "attack.search_on=1",
                "benchmark.suites=[slack]",
                "user_tasks=[0,1]",
                f"logdir={tmp_path / 'runs'}",
            ],
            config_dirs=[tmp_path / "conf"],
        )
        outcome = session.execute(Silent())
        asked = target.requests, attacker.requests
    assert (outcome.errors, outcome.fatal) == (0, None)
    records = records_in(tmp_path / "runs")
    attempts = [record for path, record in records.items() if ATTEMPTS in path]
    cases = [record for path, record in records.items() if ATTEMPTS not in path]
    assert len(cases) == 10
    found = [case["agentsys"]["search"]["found_at"] for case in cases]
    assert 1 in found, "no search succeeded"
    assert None in found, "no search went through its budget"
    sent = {"agent": 0, "attacker": 0}
    for record in [*attempts, *cases]:
        for role, usage in record["agentsys"]["usage"].items():
            sent[role] += usage["requests"]
    assert asked == (sent["agent"], sent["attacker"])
    # The second attempt's proposal was asked for with the first.
    facts = [record["agentsys"]["attempt"] for record in attempts]
    assert sent["attacker"] == sum((fact["stream"], fact["depth"]) != (1, 1) for fact in facts)
    assert all(record["agentsys"]["simulated"] for record in records.values())
