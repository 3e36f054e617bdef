"""From an SDK's exception to our closed set of kinds. The table is in docs/errors.md.

The SDKs' own classes are not trusted for this: they differ between releases and vendors (529 is
an `InternalServerError` in one and not in another), so status, code and wording decide.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from agentsys.models.errors import ErrorKind, ModelError

_CONTEXT = re.compile(
    r"context[_ ]length|maximum context|context[_ ]window|prompt is too long|input is too long"
    r"|too many input tokens"
    r"|input token count.{0,80}exceed|exceeds? the (maximum|max) (number of|input) tokens|request_too_large"
    r"|reduce the length of the (messages|input)|prompt (tokens )?.{0,40}longer than the maximum",
    re.IGNORECASE | re.DOTALL,
)
_REFUSED = re.compile(r"content_filter|content_policy|content management policy|responsibleai", re.IGNORECASE)
_NO_CREDIT = re.compile(
    r"insufficient_quota|billing_error|credit balance is too low|billing_hard_limit", re.I
)
_BAD_KEY = re.compile(r"api_key_invalid|api key not valid|invalid_api_key", re.IGNORECASE)
_UNKNOWN_MODEL = re.compile(r"model_not_found", re.IGNORECASE)

_BY_STATUS = {
    401: ErrorKind.BAD_KEY,
    402: ErrorKind.NO_CREDIT,
    403: ErrorKind.BAD_KEY,
    404: ErrorKind.UNKNOWN_MODEL,
    408: ErrorKind.TIMEOUT,
    409: ErrorKind.SERVER_ERROR,
    413: ErrorKind.CONTEXT_LENGTH,
    425: ErrorKind.SERVER_ERROR,
    429: ErrorKind.RATE_LIMITED,
    503: ErrorKind.OVERLOADED,
    504: ErrorKind.TIMEOUT,
    529: ErrorKind.OVERLOADED,
}

_MESSAGE_LENGTH = 300


def kind_of(status: int, body: str) -> ErrorKind:
    """The kind of a failed HTTP answer.

    Args:
        status: The HTTP status.
        body: Code, type and message of the error as the server gave them, in one text.
    """
    if 400 <= status < 500:
        # Wording first: providers put overflow, refusals and empty accounts under 400, 403 and 429 alike.
        for pattern, kind in (
            (_NO_CREDIT, ErrorKind.NO_CREDIT),
            (_BAD_KEY, ErrorKind.BAD_KEY),
            (_UNKNOWN_MODEL, ErrorKind.UNKNOWN_MODEL),
            (_CONTEXT, ErrorKind.CONTEXT_LENGTH),
            (_REFUSED, ErrorKind.CONTENT_REFUSED),
        ):
            if status not in (408, 409, 425) and pattern.search(body):
                return kind
    if "overloaded_error" in body:
        return ErrorKind.OVERLOADED
    fallback = ErrorKind.SERVER_ERROR if status >= 500 or status < 400 else ErrorKind.BAD_REQUEST
    return _BY_STATUS.get(status, fallback)


def retry_after_s(headers: Mapping[str, str] | None, now: float | None = None) -> float | None:
    """Seconds a server asks us to wait: `retry-after-ms`, or `Retry-After` as seconds or HTTP date.

    Args:
        headers: Response headers, looked up by lower-case name.
        now: Unix time, for dates; the clock's where None.
    """
    if headers is None:
        return None
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def http_error(status: int, body: object, headers: Mapping[str, str] | None, key: str | None) -> ModelError:
    """The error for a failed HTTP answer.

    Args:
        status: The HTTP status.
        body: The error object, parsed or as text.
        headers: Response headers.
        key: The key in use: cut from the message, should a server echo it.
    """
    text = body if isinstance(body, str) else str(body)
    kind = kind_of(status, text)
    if kind is ErrorKind.BAD_KEY:
        # Providers quote the refused key, in part, in this message; ours leaves it out.
        return ModelError(kind, f"the provider refused the key (HTTP {status})")
    message = f"HTTP {status}: {_wording(body)}"
    return ModelError(kind, one_line(message, key), retry_after_s(headers))


def _wording(body: object) -> str:
    error: Any = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(error, Mapping):
        return " ".join(str(error[part]) for part in ("code", "type", "status", "message") if error.get(part))
    return str(error)


def one_line(text: str, key: str | None = None) -> str:
    """A message as one bounded line without the key."""
    if key:
        text = text.replace(key, "***")
    return " ".join(text.split())[:_MESSAGE_LENGTH]


def transport_error(error: BaseException) -> ModelError | None:
    """The error for a failure below HTTP or of parsing; None if it is neither (then it is a bug).

    Classes are told by name, so that httpx and httpx2 (which SDK uses which changes between
    releases) need not be imported, or even installed.
    """
    names = {base.__name__ for base in type(error).__mro__}
    where = f"{type(error).__name__}: {one_line(str(error))}"
    module = type(error).__module__
    if names & {"TimeoutException", "APITimeoutError", "TimeoutError", "Timeout"}:
        return ModelError(ErrorKind.TIMEOUT, where)
    if names & {"TransportError", "APIConnectionError", "ConnectionError", "StreamError", "DecodingError"}:
        return ModelError(ErrorKind.CONNECTION, where)
    if module.startswith("google.auth"):
        return ModelError(ErrorKind.BAD_KEY, f"no usable Google credentials ({type(error).__name__})")
    if names & {"JSONDecodeError", "UnicodeDecodeError", "RecursionError"}:
        return ModelError(ErrorKind.MALFORMED_REPLY, f"the reply is not JSON ({type(error).__name__})")
    return None
