"""A loopback server in OpenAI's embeddings format: a text's vector is its length and the sum of its bytes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from posted_server import one_certificate, serve_posts


class EmbeddingServer:
    """Keeps the bodies of all requests."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""


def _vectors(body: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"index": place, "embedding": [len(text), sum(text.encode())]}
        for place, text in enumerate(body["input"])
    ]
    return {"data": rows[::-1], "model": "m-1", "usage": {"prompt_tokens": 7 * len(rows)}}


@contextmanager
def embedding_server(
    answer: Callable[[dict[str, Any]], Any] = _vectors, failures: int = 0, status: int = 500
) -> Iterator[EmbeddingServer]:
    """A server that fails as often as it is told, and then answers."""
    kept = EmbeddingServer()

    def reply(raw: bytes) -> tuple[int, bytes]:
        body = json.loads(raw)
        kept.bodies.append(body)
        failed = len(kept.bodies) <= failures
        said = {"error": {"message": "no: sk-very-secret-123"}} if failed else answer(body)
        return (status if failed else 200), json.dumps(said).encode()

    with serve_posts(reply) as address, mock.patch.dict(os.environ, SSL_CERT_FILE=one_certificate()):
        os.environ.pop("SSL_CERT_DIR", None)
        kept.url = f"{address}/v1"
        yield kept


__all__ = ["EmbeddingServer", "embedding_server"]
