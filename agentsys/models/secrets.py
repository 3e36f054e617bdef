"""Cutting secrets out of texts that are stored or shown: keys a server echoes, credentials in addresses."""

from __future__ import annotations

import base64
import re
from functools import lru_cache
from typing import Any

SECRET_MARK = "***"
"""Stands where a secret was."""

_MIN_RUN = 12
"""Characters of a key that a text must share in a row to lose them; `sk-ant-api03` alone is no secret."""
_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]*@")


def mask_address_credentials(text: str) -> str:
    """The text with user name and password of every address in it masked: `http://***@host/v1`."""
    return _USER_INFO.sub(SECRET_MARK + "@", text) if "://" in text else text


_OTHER_SECRETS = re.compile(
    # Keys as vendors write them, masked by them in part or not; what stands behind a word for one
    r"\b(?:sk|pk|rk|gsk|xai|nvapi|hf|pplx|fw|tgp|r8|csk|AIza|ya29\.|AKIA)[-_A-Za-z0-9*.]{12,}"
    r"|(?<=bearer )[-_.~+/=A-Za-z0-9*]{8,}|(?<=[?&]key=)[^&\s\"']{8,}"
    r"|(?<=api[_-]key[=:])\s?[^\s,\"']{8,}",
    re.IGNORECASE,
)


def mask_other_secrets(text: str) -> str:
    """The text without what looks like somebody's key: servers quote those of the providers behind them."""
    return _OTHER_SECRETS.sub(SECRET_MARK, text)


def mask_credentials(value: Any) -> Any:
    """Plain data (dicts, lists, values) with every text `mask_address_credentials`."""
    if isinstance(value, str):
        return mask_address_credentials(value)
    if isinstance(value, dict):
        return {key: mask_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mask_credentials(item) for item in value)
    return value


def mask_key(text: str, key: str | None) -> str:
    """The text without the key, the longer parts of it, and what base64 makes of it.

    A key shorter than 12 characters stays: it is a stand-in (`none`, `EMPTY`) for servers that want none.
    """
    if not key or len(key) < _MIN_RUN:
        return text
    windows = _list_secret_windows(key)
    pieces, end = list[str](), 0
    for start in range(len(text) - _MIN_RUN + 1):
        if text[start : start + _MIN_RUN] in windows:
            if start > end or not pieces:  # not one with the part before it
                pieces += [text[end:start], SECRET_MARK]
            end = start + _MIN_RUN
    return "".join([*pieces, text[end:]])


@lru_cache(maxsize=16)
def _list_secret_windows(key: str) -> frozenset[str]:
    """All parts of `_MIN_RUN` characters of the key, and of its base64 at each place among other bytes."""
    forms = {key}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + key.encode()).decode().rstrip("=")
        # Characters at the ends also depend on the neighbours.
        inner = text[-(-before * 8 // 6) : -1]
        forms |= {inner, inner.replace("+", "-").replace("/", "_")}
    return frozenset(form[at : at + _MIN_RUN] for form in forms for at in range(len(form) - _MIN_RUN + 1))
