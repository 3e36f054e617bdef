"""A served model that counts what it is asked, and runs of a few cases against it, direct and in batches."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from small_runs import Silent

from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of
from agentsys.models.serving import Server

QUICK = {"quiet_s": 0.05, "poll_s": 0.05, "wait_s": 20}
USAGE = Usage(prompt=1000, completion=500)
USD = 2.0
"""Of one reply, at the price below, where it was not in a batch."""


class Counting:
    """Calls one tool, then answers; counts how often it was asked each question."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def complete(self, request: ChatRequest) -> ChatReply:
        task = next(text_of(message) for message in request.messages if message["role"] == "user")
        turn = sum(message["role"] == "assistant" for message in request.messages)
        with self._lock:
            self.asked[f"{turn}: {task}"] += 1
        if turn < 2 and request.tools:
            call = FunctionCall(function=request.tools[turn].name, args={}, id=f"call_{turn}")
            return ChatReply(assistant(None, [call]), usage=USAGE)
        return ChatReply(assistant("Done."), usage=USAGE)

    @property
    def total(self) -> int:
        return sum(self.asked.values())


VENDORS: dict[str, dict[str, Any]] = {
    "openai": {"_target_": "agentsys.models.providers.openai.OpenAIModel"},
    "responses": {"_target_": "agentsys.models.providers.openai.OpenAIModel", "api": "responses"},
    "anthropic": {
        "_target_": "agentsys.models.providers.anthropic.AnthropicModel",
        "max_tokens": 8192,
    },
}


def model_for(folder: Path, server: Server, vendor: str, **more: Any) -> Path:
    """A config folder with `model=paid`: 1 dollar per 1,000 prompt tokens, 2 per 1,000 of completion."""
    path = folder / "conf" / "model" / "paid.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields = {
        **VENDORS[vendor],
        "name": "paid",
        "prose_name": "GPT-4",
        "model_id": "paid-1",
        "api_key_env": None,
        "base_url": server.base_url if vendor == "anthropic" else server.openai_base_url,
        "batch": None,
        "cache": False,
        "price": {"prompt": 1000.0, "completion": 2000.0, "as_of": "2025-01-01"},
        "retry": {"attempts": 8, "base_s": 0.01},
        **more,
    }
    path.write_text(json.dumps(fields))
    return folder / "conf"


def plan(logdir: Path, *more: str) -> list[str]:
    return [
        "model=paid",
        "benchmark.suites=[slack]",
        "user_tasks=[0,1,2,3]",
        "defense=none",
        "preflight=false",
        "executor.workers=4",
        f"logdir={logdir}",
        *more,
    ]


def played(logdir: Path, conf: Path, *more: str) -> list[Any]:
    """Run the plan; gives its records, in a fixed order."""
    from agentsys.runs.session import prepare

    listener = Silent()
    prepare(plan(logdir, *more), config_dirs=[conf]).execute(listener)
    return sorted(listener.records, key=lambda record: record.case.key)


def cost(records: Sequence[Any]) -> float:
    return sum(usage.cost_usd for record in records for usage in record.usage.values())
