"""Exchanges over TLS: with whom the vendors' clients speak, by how many connections, until when."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hostile_server import Answer, hostile
from providers_under_test import PROVIDERS

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ErrorKind, ModelError, user


@dataclass(frozen=True)
class Identity:
    """Somebody's certificate, and the key to it."""

    certificate: Path
    """In PEM. Who trusts this file trusts its owner."""
    key: Path

    def shown(self) -> ssl.SSLContext:
        """What a server shows it with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def identity(folder: Path, whose: str = "127.0.0.1", days: int = 1) -> Identity:
    """An identity of one address or host name, in two files of a folder; skips where none can be made.

    Args:
        folder: Made if it is not there.
        whose: An IP address, or a host name.
        days: From now until it ends; negative: it has ended.
    """
    x509 = pytest.importorskip("cryptography.x509", reason="makes its certificates with `cryptography`")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test")])
    own = x509.IPAddress(ipaddress.ip_address(whose)) if whose[0].isdigit() else x509.DNSName(whose)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([own]), critical=False)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(exist_ok=True)
    found = Identity(folder / "certificate.pem", folder / "key.pem")
    found.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    found.key.write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return found


VENDORS = ("openai", "anthropic")
BIG = "x" * 3_000_000
"""More than a socket takes at a time."""


def reply(said: str) -> list[bytes]:
    """One that each vendor's client reads."""
    parts = {"choices": [{"message": {"content": said}}], "content": [{"type": "text", "text": said}]}
    body = json.dumps(parts).encode()
    return [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body]


def echo(request: bytes) -> Answer:
    """The last word of what was asked."""
    return reply(request.decode().rpartition("word ")[2].partition('"')[0])


def ask(word: str, more: str = "") -> ChatRequest:
    return ChatRequest([user(f"{more} word {word}")])


def said(found: ChatReply) -> str:
    return "".join(str(block["content"]) for block in found.message["content"] or ())


@pytest.fixture
def ours(tmp_path: Path) -> Identity:
    return identity(tmp_path / "ours")


@pytest.fixture(autouse=True)
def _trusting(ours: Identity, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only our own server is trusted, as with a company's own authority."""
    monkeypatch.setenv("SSL_CERT_FILE", str(ours.certificate))
    for name in ("SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def client(vendor: str, base_url: str, timeout_s: float = 20.0) -> ChatModel:
    address = f"{base_url}/v1" if vendor == "openai" else base_url
    bound: dict[str, Any] = {"max_tokens": 100} if vendor == "anthropic" else {}
    return PROVIDERS[vendor]("m", "m-1", None, base_url=address, timeout_s=timeout_s, **bound)


def error_of(model: ChatModel, request: ChatRequest) -> ModelError:
    with pytest.raises(ModelError) as caught:
        model.complete(request)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("vendor", VENDORS)
def test_one_connection_serves_one_exchange_after_the_other_large_ones_among_them(
    vendor: str, ours: Identity
) -> None:
    with hostile(echo, keeps=True, tls=ours.shown()) as server:
        model = client(vendor, server.base_url)
        for word, more in (("a", ""), ("b", BIG), ("c", "")):
            assert said(model.complete(ask(word, more))) == word
        assert len(server.requests) == 3 and len(set(server.places)) == 1
        assert BIG.encode() in server.requests[1]


@pytest.mark.parametrize("vendor", VENDORS)
@pytest.mark.parametrize("shakes_hands", [False, True])
def test_a_server_that_reads_nothing_is_a_timeout(vendor: str, shakes_hands: bool, ours: Identity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def accept() -> None:
            connection, _ = listener.accept()
            with ours.shown().wrap_socket(connection, server_side=True) if shakes_hands else connection:
                done.wait(60)

        threading.Thread(target=accept, daemon=True).start()
        model = client(vendor, f"https://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.5)
        assert error_of(model, ask("?", 7 * BIG)).kind is ErrorKind.TIMEOUT
        done.set()


@pytest.mark.parametrize("vendor", PROVIDERS)
@pytest.mark.parametrize(
    ("whose", "why"),
    [
        ({}, "self-signed certificate"),
        ({"whose": "elsewhere.invalid"}, "not valid for '127.0.0.1'"),
        ({"days": -1}, "certificate has expired"),
    ],
    ids=["of nobody we know", "of another", "of the past"],
)
def test_a_wrong_certificate_is_one_line_that_says_what_is_wrong_where_and_how_to_mend_it(
    vendor: str, whose: dict[str, Any], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = identity(tmp_path / "shown", **whose)
    if why != "self-signed certificate":
        monkeypatch.setenv("SSL_CERT_FILE", str(shown.certificate))
    with hostile(echo, tls=shown.shown()) as server:
        found = error_of(client(vendor, server.base_url), ask("secret"))
        assert server.requests == []
    assert found.kind is ErrorKind.CONNECTION
    assert why in str(found)
    assert "127.0.0.1 shows a certificate that" in str(found) and "SSL_CERT_FILE" in str(found)


def test_the_system_s_own_authorities_are_the_default(
    monkeypatch: pytest.MonkeyPatch, ours: Identity
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    assert "SSL_CERT_FILE" not in os.environ
    with hostile(echo, tls=ours.shown()) as server:
        assert "self-signed" in str(error_of(client("openai", server.base_url), ask("?")))
        assert server.requests == []
