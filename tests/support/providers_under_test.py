"""The providers' models pointed at a loopback server, and a server with canned answers."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import certifi

from agentsys.models import providers
from agentsys.models.chat import ChatModel
from agentsys.models.providers.sdk_model import SdkModel

VENDORS = ("openai", "anthropic", "google")
"""Those whose wire format a model that we serve speaks."""


def _found() -> dict[str, type[SdkModel]]:
    """Every provider that is built on an HTTP client of its own: all but litellm, which shares one."""
    found: dict[str, type[SdkModel]] = {}
    for module in pkgutil.iter_modules(providers.__path__, f"{providers.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            ours = inspect.isclass(value) and value.__module__ == module.name and issubclass(value, SdkModel)
            if ours and not inspect.isabstract(value) and value.__name__ != "LiteLLMModel":
                found[module.name.rpartition(".")[2]] = value
    return found


PROVIDERS = _found()
"""Module's name -> class; one that is new is put through every test that needs no reply of its own."""


@cache
def _one_certificate() -> str:
    """A bundle of one certificate: reading all 140 takes a client 0.1 to 0.3 s, and loopback needs none."""
    path = Path(tempfile.mkdtemp()) / "one.pem"
    end = "-----END CERTIFICATE-----\n"
    path.write_text(Path(certifi.where()).read_text().split(end)[0] + end)
    return str(path)


def model_at(vendor: str, base_url: str, key_env: str | None = None, **more: Any) -> ChatModel:
    """A vendor's model, by default without a key; `base_url` is scheme, host and port."""
    with mock.patch.dict(os.environ, SSL_CERT_FILE=_one_certificate()):
        os.environ.pop("SSL_CERT_DIR", None)
        return _built(vendor, base_url, key_env, {"timeout_s": 10.0, **more})


def _built(vendor: str, base_url: str, key_env: str | None, arguments: dict[str, Any]) -> ChatModel:
    address = f"{base_url}/v1" if vendor == "openai" else base_url
    bound = {"max_tokens": 100} if vendor == "anthropic" else {}
    model = PROVIDERS[vendor]("m", "m-1", key_env, base_url=address, **{**bound, **arguments})
    model.warm_up()  # or the first request would make its client, and read the certificates
    return model


class Canned:
    """Answers every request alike and counts them."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.requests = 0
        self.body = body
        self.last = b""
        """Body of the last request."""
        canned = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                canned.requests += 1
                canned.last = self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(canned.body)))
                self.end_headers()
                self.wfile.write(canned.body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.base_url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[Canned]:
    """A server that gives one answer for ever; header names with `_` for `-`."""
    canned = Canned(status, body, {name.replace("_", "-"): value for name, value in headers.items()})
    threading.Thread(target=canned.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield canned
    finally:
        canned.server.shutdown()
        canned.server.server_close()
