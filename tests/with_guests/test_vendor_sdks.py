"""Vendors' SDKs in one run: each role is asked, counted and paid at its own vendor's server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from served_faults import TestServer as Server
from served_faults import serve
from small_runs import Silent

from agentsys.models.chat import ChatReply, ChatRequest, Usage
from agentsys.models.pricing import pick_usage
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.serve.agent_server import build_served_model

PRICES: dict[str, dict[str, float]] = {
    "main": {"prompt": 4.0, "cached": 0.4, "completion": 20.0},
    "worker": {"prompt": 1.0, "cached": 0.1, "completion": 5.0},
    "validator": {"prompt": 0.5, "cached": 0.05, "completion": 3.0},
}
"""US dollars per million tokens."""
PATHS = {"main": "/v1/responses", "worker": "/v1/messages", "validator": ":generateContent"}


class WithCache:
    """The served model, half of whose prompts count as read from a cache and ten tokens as reasoning."""

    def __init__(self, model: Any) -> None:
        self.model, self.name = model, model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        reply = self.model.complete(request)
        used = pick_usage(request, reply)
        counted = Usage(used.prompt, used.completion + 10, cached=used.prompt // 2, reasoning=10)
        return replace(reply, usage=counted)


def models(folder: Path, server: Server) -> Path:
    """Three models as YAMLs; the first one is the run's, the others play roles."""
    vendor = "agentsys.models.providers"
    asked: dict[str, dict[str, Any]] = {
        "main": {
            "_target_": f"{vendor}.openai.OpenAIModel",
            "base_url": server.openai_base_url,
            "api": "responses",
            "reasoning_effort": "high",
            "temperature": None,
            "roles": {"worker": "by_worker", "validator": "by_validator"},
        },
        "worker": {
            "_target_": f"{vendor}.anthropic.AnthropicModel",
            "base_url": server.base_url,
            "max_tokens": 4096,
            "thinking": "adaptive",
            "effort": "low",
            "temperature": None,
        },
        "validator": {
            "_target_": f"{vendor}.google.GoogleModel",
            "base_url": server.base_url,
            "thinking_level": "low",
            "temperature": None,
        },
    }
    for role, fields in asked.items():
        about = {"name": f"by_{role}", "prose_name": "AI model", "model_id": "m-1", "api_key_env": None}
        price = {**PRICES[role], "as_of": "2026-11-22"}
        path = folder / "conf" / "model" / f"by_{role}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**about, "send_role": True, "price": price, "cache": False, **fields}))
    return folder / "conf"


def usd(role: str, used: Any) -> float:
    price = PRICES[role]
    fresh = (used.prompt - used.cached) * price["prompt"]
    return (fresh + used.cached * price["cached"] + used.completion * price["completion"]) / 1e6


def stated(role: str, body: Mapping[str, Any]) -> object:
    """What a request says of how much to think."""
    if role == "main":
        return body["reasoning"]
    if role == "worker":
        return body["thinking"], body["output_config"]
    return body["generationConfig"]["thinkingConfig"]


EFFORTS = {
    "main": {"effort": "high"},
    "worker": ({"type": "adaptive"}, {"effort": "low"}),
    "validator": {"thinkingLevel": "low"},
}


@pytest.mark.slow
def test_each_role_is_asked_counted_and_paid_at_its_own_vendor(tmp_path: Path) -> None:
    listener = Silent()
    with serve(WithCache(build_served_model())) as server:
        chosen = [
            "model=by_main",
            "defense=agentsys",
            "attack=important_instructions",
            "benchmark.suites=[banking]",
            "limit_per_suite=4",
            f"logdir={tmp_path / 'runs'}",
        ]
        prepare_session(chosen, config_dirs=[models(tmp_path, server)]).execute(listener)
        captured = [one for one in server.captured if one.body and "x-agentsys-role" in one.headers]
    assert {record.status for record in listener.records} == {"ok"}
    for one in captured:
        role = one.headers["x-agentsys-role"]
        by = role if role in ("worker", "validator") else "main"
        assert PATHS[by] in one.path, f"{role} was asked at {one.path}"
        assert stated(by, json.loads(one.body)) == EFFORTS[by]
    totals: dict[str, float] = {}
    for record in listener.records:
        for role, used in record.usage.items():
            by = role if role in ("worker", "validator") else "main"
            assert used.cached == pytest.approx(used.prompt / 2, abs=used.calls) and used.cached > 0
            # Anthropic's count has no reasoning of its own.
            assert used.reasoning == (0 if by == "worker" else 10 * used.calls)
            assert used.cost_usd == pytest.approx(usd(by, used))
            totals[role] = totals.get(role, 0.0) + used.cost_usd
    assert {"main", "worker", "validator"} <= totals.keys()
    told = command_output("results", tmp_path / "runs", "--by", "cost", "--format", "csv")
    for role, dollars in totals.items():
        for measure in ("tokens_per_case", "cached_tokens_per_case", "usd_per_case"):
            assert f"{measure}:{role}" in told
        assert f"{dollars / len(listener.records):.4g}"[:4] in told
