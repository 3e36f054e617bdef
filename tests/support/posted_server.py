"""`serve_posts`: a loopback server that answers what is posted to it; and a bundle of one certificate."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi

JSON = {"Content-Type": "application/json"}


@contextmanager
def serve_posts(
    answer: Callable[[bytes], tuple[int, bytes]], headers: Mapping[str, str] = JSON
) -> Iterator[str]:
    """A server whose address (scheme, host, port) is given; `answer` gets a body and gives status and body."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            status, body = answer(self.rfile.read(int(self.headers.get("content-length") or 0)))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@cache
def one_certificate() -> str:
    """A bundle of one certificate: reading all 140 takes a client 0.1 to 0.3 s, and loopback needs none."""
    path = Path(tempfile.mkdtemp()) / "one.pem"
    end = "-----END CERTIFICATE-----\n"
    path.write_text(Path(certifi.where()).read_text().split(end)[0] + end)
    return str(path)
