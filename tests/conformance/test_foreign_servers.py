"""A server that nobody here wrote: litellm's proxy in front of `agentsys serve` (slow; extra `proxy`).

`AGENTSYS_LITELLM` may name the command of another environment.
"""

from __future__ import annotations

import secrets
import socket
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served_faults import serve
from small_runs import Silent, records_in
from started_servers import command, started

from agentsys.runs.run_session import prepare_session
from agentsys.serve_agent.agent_server import build_served_model

CASES = 20
KEY = "LITELLM_MASTER_KEY"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a proxy that passes everything on to a served model; it does not start without a key."""
    start = command("litellm", "AGENTSYS_LITELLM", "proxy", ["fastapi", "uvicorn"])
    monkeypatch.setenv(KEY, f"sk-{secrets.token_hex(32)}")
    with serve(build_served_model(version="v1.2.2", options={})) as server:
        config, port = tmp_path / "proxy.yaml", free_port()
        config.write_text(
            "model_list:\n"
            "  - model_name: served\n"
            "    litellm_params: {model: openai/simulated, api_key: none, "
            f"api_base: '{server.openai_base_url}'}}\n"
        )
        address = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
        url = f"http://127.0.0.1:{port}"
        log, environment = tmp_path / "proxy.log", {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        with started([str(start), *address], log, lambda _: answering(url), environment):
            yield f"{url}/v1"


def answering(url: str) -> str | None:
    try:
        with urllib.request.urlopen(f"{url}/health/liveliness", timeout=2):
            return url
    except OSError:
        return None


def ran(folder: Path, base_url: str) -> dict[str, Any]:
    chosen = ["model=served", f"model.base_url={base_url}", "model.model_id=served", "model.timeout_s=60"]
    chosen += [f"model.api_key_env={KEY}", "model.send_role=false", "benchmark.suites=[slack]"]
    session = prepare_session(
        [*chosen, "defense=none", "attack=important_instructions", f"limit={CASES}", f"logdir={folder}"]
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
