"""Certificates that sign themselves, made anew for the tests that speak TLS with a server of their own."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest


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
