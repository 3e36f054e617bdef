"""A loopback server in OpenAI's embeddings format: a text's vector is its length and the sum of its bytes."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import certifi


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


@cache
def _one_certificate() -> str:
    """A bundle of one certificate: reading all 140 takes a client 0.1 to 0.3 s, and loopback needs none."""
    path = Path(tempfile.mkdtemp()) / "one.pem"
    end = "-----END CERTIFICATE-----\n"
    path.write_text(Path(certifi.where()).read_text().split(end)[0] + end)
    return str(path)


@contextmanager
def embedding_server(
    answer: Callable[[dict[str, Any]], Any] = _vectors, failures: int = 0, status: int = 500
) -> Iterator[EmbeddingServer]:
    """A server that fails as often as it is told, and then answers."""
    kept = EmbeddingServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            kept.bodies.append(body)
            failed = len(kept.bodies) <= failures
            said = {"error": {"message": "no: sk-very-secret-123"}} if failed else answer(body)
            raw = json.dumps(said).encode()
            self.send_response(status if failed else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    kept.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        with mock.patch.dict(os.environ, SSL_CERT_FILE=_one_certificate()):
            os.environ.pop("SSL_CERT_DIR", None)
            yield kept
    finally:
        server.shutdown()
        server.server_close()


__all__ = ["EmbeddingServer", "embedding_server"]
