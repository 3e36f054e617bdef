"""`loopback`: addresses that only this machine can reach, for servers that ask nobody for a key."""

from __future__ import annotations

import ipaddress

from agentsys.errors import ConfigError


def require_loopback(host: str, what: str) -> str:
    """The host as an address, if only this machine can reach it.

    Args:
        host: As the user wrote it.
        what: What would be served, for the message: `a model is served`.

    Raises:
        ConfigError: If others could reach it.
    """
    address = "127.0.0.1" if host == "localhost" else host
    try:
        inside = ipaddress.ip_address(address).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigError(f"Host '{host}' is not loopback; {what} on 127.0.0.1, ::1 or localhost only.")
    return address
