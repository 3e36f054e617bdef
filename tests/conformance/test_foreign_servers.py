"""A server that nobody here wrote: litellm's proxy in front of `agentsys serve` (slow; extra `proxy`).

`AGENTSYS_LITELLM` may name the command of another environment.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_faults import serve
from small_runs import Silent, records_in
from started_servers import litellm_proxy

from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

CASES = 20
KEY = "LITELLM_MASTER_KEY"


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a proxy that passes everything on to a served model; it does not start without a key."""
    monkeypatch.setenv(KEY, f"sk-{secrets.token_hex(32)}")
    with (
        serve(build_served_model()) as server,
        litellm_proxy(server.openai_base_url, tmp_path) as url,
    ):
        yield f"{url}/v1"


def ran(folder: Path, base_url: str) -> dict[str, Any]:
    chosen = ["model=served", f"model.base_url={base_url}", "model.model_id=served", "model.timeout_s=60"]
    chosen += [f"model.api_key_env={KEY}", "model.send_role=false", "benchmark.suites=[slack]"]
    session = prepare_session(
        [
            *chosen,
            "defense=none",
            "attack=important_instructions",
            f"limit_per_suite={CASES}",
            f"logdir={folder}",
        ]
    )
    session.preflight().execute(Silent())
    return records_in(folder)


@pytest.mark.slow
def test_cases_through_litellms_proxy_end_in_defined_outcomes(proxy: str, tmp_path: Path) -> None:
    records = ran(tmp_path / "runs", proxy)
    blocks = [record["agentsys"] for record in records.values()]
    outcomes = Counter(block["error_kind"] or "ok" for block in blocks)
    assert len(blocks) == CASES
    assert outcomes == {"ok": CASES}, outcomes
    calls = [call for block in blocks for span in block["spans"] for call in span["calls"]]
    assert all(call["uncounted"] or call["prompt"] > 0 for call in calls)
    structured = sum(len(m.get("tool_calls") or ()) for r in records.values() for m in r["messages"])
    unparsed = sum(call["odd"].get("unparsed_call", 0) for call in calls)
    assert structured + unparsed > CASES
    assert all(block["simulated"] for block in blocks)
