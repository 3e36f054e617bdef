"""A small OpenAI-compatible server that bills every answer, to count against what we booked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from posted_server import serve_posts

USAGE = {"prompt_tokens": 1000, "completion_tokens": 500}
USD = 2.0
"""Of one answer, at the model's price below."""

Answer = tuple[int, dict[str, Any]]


def says(text: str | None = "Done.", calls: list[dict[str, Any]] | None = None) -> Answer:
    message = {"role": "assistant", "content": text, "tool_calls": calls or None}
    return 200, {
        "model": "paid-1",
        "usage": USAGE,
        "choices": [{"message": message, "finish_reason": "stop"}],
    }


def calls(name: str, arguments: str) -> Answer:
    return says(None, [{"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}])


def fails(status: int) -> Answer:
    return status, {"error": {"message": "no", "type": "server_error"}}


class Paid:
    """What was asked of the server, and where it is."""

    def __init__(self, answer: Callable[[int, dict[str, Any]], Answer]) -> None:
        self.answer = answer
        self.asked: list[dict[str, Any]] = []
        self.billed = 0
        self.lock = threading.Lock()
        self.url = ""
        self.answers = threading.Event()
        """Cleared: every answer waits until it is set."""
        self.answers.set()

    def reply(self, body: dict[str, Any]) -> Answer:
        self.answers.wait(300)
        with self.lock:
            self.asked.append(body)
            status, data = self.answer(len(self.asked), body)
            self.billed += "usage" in data
            return status, data


@contextmanager
def paid_server(answer: Callable[[int, dict[str, Any]], Answer]) -> Iterator[Paid]:
    """A server on loopback; `answer` gets the request's number, from 1, and its body."""
    paid = Paid(answer)

    def reply(body: bytes) -> tuple[int, bytes]:
        status, data = paid.reply(json.loads(body))
        return status, json.dumps(data).encode()

    with serve_posts(reply) as address:
        paid.url = f"{address}/v1"
        yield paid


def paid_model(folder: Path, url: str, **more: object) -> Path:
    """A config folder with `model=paid`: 1 dollar per 1,000 prompt tokens, 2 per 1,000 of completion."""
    path = folder / "conf" / "model" / "paid.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    fields: dict[str, object] = {
        "_target_": "agentsys.models.providers.openai.OpenAIModel",
        "name": "paid",
        "prose_name": "GPT-4",
        "model_id": "paid-1",
        "api_key_env": None,
        "base_url": url,
        "cache": True,
        "price": {"prompt": 1000.0, "completion": 2000.0, "as_of": "2025-01-01"},
        "retry": {"attempts": 4, "base_s": 0.0},
        **more,
    }
    path.write_text(json.dumps(fields))
    return folder / "conf"
