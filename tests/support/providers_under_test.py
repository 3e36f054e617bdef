"""The providers' models pointed at a loopback server, and a server with canned answers."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from posted_server import JSON, one_certificate, serve_posts

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


def model_at(vendor: str, base_url: str, key_env: str | None = None, **more: Any) -> ChatModel:
    """A vendor's model, by default without a key; `base_url` is scheme, host and port."""
    with mock.patch.dict(os.environ, SSL_CERT_FILE=one_certificate()):
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

    def __init__(self, status: int, body: bytes) -> None:
        self.requests, self.status, self.body = 0, status, body
        self.base_url, self.last = "", b""
        """Address, and body of the last request."""

    def answer(self, posted: bytes) -> tuple[int, bytes]:
        self.requests += 1
        self.last = posted
        return self.status, self.body


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[Canned]:
    """A server that gives one answer for ever; header names with `_` for `-`."""
    canned = Canned(status, body)
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    with serve_posts(canned.answer, {**JSON, **own}) as canned.base_url:
        yield canned
