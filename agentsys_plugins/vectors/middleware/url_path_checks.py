"""Checks of URLs and paths in arguments, read as browsers, clients and file systems read them."""

from __future__ import annotations

import ipaddress
import posixpath
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from agentsys_plugins.vectors.middleware.guard_settings import load_optional

_LEVELS = 4
"""Rounds of percent-decoding: servers and tools decode once, attackers rely on a second time."""
_OVERLONG = re.compile(rb"[\xc0\xc1]([\x80-\xbf])|\xe0\x80([\x80-\xbf])|\xf0\x80\x80([\x80-\xbf])")
_PERCENT_U = re.compile(r"%u([0-9a-fA-F]{4})")
_ESCAPE_SEQUENCE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-7]{3}))")
_DRIVE = re.compile(r"^[a-zA-Z]:")
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:(?:/|\\)")
_SHELL = re.compile(r"[$`*?\[\]{}'\"\\;|&<>()!\n\r\t ~]")
"""Characters that a shell expands, removes or splits words at."""
_LOOK_ALIKES = str.maketrans(
    {"∕": "/", "⁄": "/", "⧸": "/", "╱": "/", "＼": "\\", "∖": "\\", "․": ".", "｡": "."}
)


def find_path_fault(path: str, root: str = ".", *, shell: bool = False) -> str | None:
    """Return why a path may not be used; None if it stays below its root.

    Root `.` is wherever the tool looks for relative paths; `shell`: the tool hands it to a shell, unquoted.
    """
    if shell and _SHELL.search(path):
        return "a shell would expand it"
    # As written, and as each step of decoding leaves it.
    for _ in range(_LEVELS + 1):
        if (why := _find_escape(path, root)) is not None:
            return why
        path = _decode_once(path)
    return None


def _decode_once(path: str) -> str:
    text = _PERCENT_U.sub(lambda code: chr(int(code[1], 16)), path)
    text = _ESCAPE_SEQUENCE.sub(_unescape_match, text)
    raw = unquote_to_bytes(text.encode("utf-8", "surrogatepass"))
    text = _OVERLONG.sub(_decode_overlong, raw).decode("utf-8", "replace")
    return unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES))


def _unescape_match(match: re.Match[str]) -> str:
    byte, unit, octal = match.groups()
    return chr(int(octal, 8) if octal else int(byte or unit, 16))


def _decode_overlong(match: re.Match[bytes]) -> bytes:
    last = next(group for group in match.groups() if group is not None)[0]
    first = match.group()[0]
    return bytes([((first & 1) << 6 if first in (0xC0, 0xC1) else 0) | (last & 0x3F)])


def _find_escape(path: str, root: str) -> str | None:
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        return "it holds control characters"
    if _DRIVE.match(path) or _SCHEME.match(path) or path.startswith(("\\\\", "//")):
        return "it names a drive, a server or a scheme"
    # Windows' own separator, and the spaces and dots that it drops at the end of a name.
    parts = [part.strip() for part in re.split(r"[/\\;]", path)]
    if any(part == ".." or re.fullmatch(r"\.{2,}", part) for part in parts):
        return "it goes up"
    if path.lstrip().startswith("~") or parts[0].startswith("~"):
        return "it begins in a home folder"
    absolute = path.strip().replace("\\", "/")
    if absolute.startswith("/"):
        inside = posixpath.normpath(absolute)
        if root in (".", "") or not (inside + "/").startswith(root.rstrip("/") + "/"):
            return "it is outside its folder"
    return None


SCHEMES = ("http", "https")
_LOCAL_NAMES = ("localhost", "localhost6", "ip6-localhost", "ip6-loopback", "broadcasthost", "loopback")
_LOCAL_ENDINGS = (
    ".localhost", ".local", ".localdomain", ".internal", ".intranet", ".lan", ".home", ".home.arpa", ".corp",
    ".private", ".in-addr.arpa", ".ip6.arpa",
)  # fmt: skip
_ECHOING = ("nip.io", "sslip.io", "xip.io", "localtest.me", "lvh.me", "vcap.me", "lacolhost.com", "rbndr.us")
"""Public domains whose names resolve to the private address written in them."""
_METADATA_NAMES = (
    "metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal",
    "metadata.azure.internal", "metadata.azure.com", "metadata.packet.net", "metadata.tencentyun.com",
    "100-100-100-200.internal",
)  # fmt: skip
_METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.253", "100.100.100.200",
                 "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254")
)  # fmt: skip
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_EVERYDAY = re.compile(
    r"https?://((?:[a-z0-9](?:[a-z0-9-]{0,62})\.){1,8}[a-z]{2,24}|\d{2,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})(?::\d{1,5})?(?:[/?#][\w./?=&%#~+-]*)?$",
    re.IGNORECASE | re.ASCII,
)
"""URLs that every parser reads alike."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x20\x7f\\]")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class UrlReach(StrEnum):
    """The kind of host that a URL leads to."""

    PUBLIC = "public"
    INTERNAL = "internal"
    """This machine, this network, or a scheme that reads files or speaks to services directly."""
    METADATA = "metadata"
    """A cloud's metadata service, which hands out credentials."""
    UNCLEAR = "unclear"
    """Parsers do not agree on the host, or there is none."""


@dataclass(frozen=True)
class UrlFault:
    """The reason for refusing a URL."""

    kind: str
    reason: str


def find_url_fault(url: str, domains: Sequence[str] | None) -> UrlFault | None:
    """Return the fault of a URL argument; None if it may be used.

    A host without a scheme is read as `http://`. Allowed are `site.example`, or `*.site.example` for all
    below; without `domains`, any public host.
    """
    text = url if "://" in url or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?!\d)", url) else f"http://{url}"
    read = _parse_url(text)
    if read is None or _CONTROL_CHARACTERS.search(url.strip()):
        return UrlFault("unreadable", "the URL cannot be read in one way only")
    scheme = str(read.protocol).rstrip(":")
    if scheme not in SCHEMES:
        return UrlFault("scheme", f"only {' and '.join(SCHEMES)} may be opened")
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]
    if read.username or read.password or "@" in authority:
        return UrlFault("credentials", "the URL holds credentials, or pretends to")
    reach = classify_reach(text)
    if reach is not UrlReach.PUBLIC:
        return UrlFault(reach.value, f"the host is {reach.value}")
    host = str(read.hostname).rstrip(".")
    if domains is not None and not any(_is_within_domain(host, domain) for domain in domains):
        return UrlFault("domain", "the domain is not on the list of allowed ones")
    return None


@lru_cache(maxsize=4096)
def classify_reach(url: str) -> UrlReach:
    """Classify the host that a URL with a scheme leads to."""
    everyday = _EVERYDAY.match(url)
    if everyday:
        return _classify_host(everyday.group(1).lower())
    read = _parse_url(url)
    if read is None:
        return UrlReach.UNCLEAR
    if str(read.protocol) not in ("http:", "https:", "ftp:", "ws:", "wss:"):
        return UrlReach.INTERNAL
    hosts = _read_hosts(url, str(read.hostname))
    reaches = {_classify_host(host) for host in hosts}
    for worst in (UrlReach.METADATA, UrlReach.INTERNAL, UrlReach.UNCLEAR):
        if worst in reaches:
            return worst
    return UrlReach.PUBLIC if len({_normalize_host(host) for host in hosts}) == 1 else UrlReach.UNCLEAR


def _parse_url(url: str) -> Any:
    try:
        return load_optional("ada_url").URL(url)
    except ValueError:
        return None


def _read_hosts(url: str, browser: str) -> list[str]:
    try:
        python = urlsplit(url).hostname
    except ValueError:
        return [browser, ""]
    host = f"[{python}]" if python and ":" in python else python
    again = _parse_url(f"http://{host}/") if host else None
    return [browser, str(again.hostname) if again is not None else ""]


def _normalize_host(host: str) -> str:
    return host.rstrip(".").casefold()


def _classify_host(host: str) -> UrlReach:
    name = _normalize_host(host)
    if not name:
        return UrlReach.UNCLEAR
    try:
        return _classify_address(ipaddress.ip_address(name.strip("[]").partition("%")[0]))
    except ValueError:  # It is a name.
        pass
    if name in _METADATA_NAMES:
        return UrlReach.METADATA
    inside = "." not in name or name in _LOCAL_NAMES or name.endswith(_LOCAL_ENDINGS)
    echoes = any(name == domain or name.endswith(f".{domain}") for domain in _ECHOING)
    return UrlReach.INTERNAL if inside or echoes else UrlReach.PUBLIC


def _classify_address(address: _Address) -> UrlReach:
    reached = {address, *_list_embedded_addresses(address)}
    if reached & _METADATA:
        return UrlReach.METADATA
    private = any(not ip.is_global or ip.is_multicast or ip.is_reserved for ip in reached)
    return UrlReach.INTERNAL if private else UrlReach.PUBLIC


def _list_embedded_addresses(address: _Address) -> list[_Address]:
    """IPv4 addresses that an IPv6 address carries: mapped, compatible, 6to4, Teredo, NAT64."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or address in _COMPATIBLE:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [ip for ip in carried if ip is not None]


def _is_within_domain(host: str, domain: str) -> bool:
    wanted = _to_ascii_domain(domain.removeprefix("*."))
    return host == wanted or (domain.startswith("*.") and host.endswith(f".{wanted}"))


@lru_cache(maxsize=256)
def _to_ascii_domain(domain: str) -> str:
    return str(load_optional("idna").encode(domain, uts46=True).decode())
