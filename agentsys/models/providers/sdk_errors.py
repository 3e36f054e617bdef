"""Translates an SDK's exceptions into our closed set of kinds. The table is in docs/errors.md.

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

from agentsys.errors import ConfigError
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.secrets import SECRET_MARK, mask_address_credentials, mask_key

_CONTEXT_OVERFLOW = re.compile(
    r"context[_ ]length|maximum context|context[_ ]window|prompt is too long|input is too long"
    r"|too many input tokens"
    r"|input token count.{0,80}exceed|exceeds? the (maximum|max) (number of|input) tokens|request_too_large"
    r"|reduce the length of the (messages|input)|prompt (tokens )?.{0,40}longer than the maximum"
    # llama.cpp; Cohere; Hugging Face's server
    r"|exceed_context_size|exceeds? the (available )?context size|too many tokens: total number of tokens"
    r"|inputs.{0,3} tokens \+ .{0,3}max_new_tokens.{0,3} must be",
    re.IGNORECASE | re.DOTALL,
)
_OVERFLOW_UNDER_500 = re.compile(
    # Older llama.cpp and llama-cpp-python
    r"exceed_context_size|exceeds? the available context size|context size (has been )?exceeded"
    r"|requested tokens \(\d+\) exceed context window",
    re.IGNORECASE,
)
_REFUSED_CONTENT = re.compile(
    # Azure; OpenAI's chat, its reasoning models and its safety checks; Anthropic; Bedrock
    r"content[_ -]?filter|content[_ ]policy|content management policy|responsible[_ ]?ai"
    r"|invalid_prompt|moderation_blocked|flagged (as|for) (potentially|possible|possibly) "
    r"|rejected (as a result of|by) (our|the) safety system|limited access to this content for safety reasons"
    r"|violat(es?|ed|ing|ion of) (our|the|openai's|anthropic's) (usage|content|safety|acceptable use) polic"
    r"|guardrail_intervened|blocked by .{0,20}guardrail",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|billing_error|credit balance is too low|billing_hard_limit", re.I
)
_BAD_KEY = re.compile(r"api_key_invalid|api key not valid|invalid_api_key", re.IGNORECASE)
_UNKNOWN_MODEL = re.compile(r"model_not_found", re.IGNORECASE)

_KIND_BY_STATUS = {
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
_SHORTEST_KEY = 4
"""Shorter keys are stand-ins, whose letters stand in any text."""


def classify_error(status: int, body: str) -> ErrorKind:
    """The kind of a failed HTTP answer by its status and its body: code, type and message in one text."""
    if 400 <= status < 500:
        # Wording first: providers put overflow, refusals and empty accounts under 400, 403 and 429 alike.
        for pattern, kind in (
            (_NO_CREDIT, ErrorKind.NO_CREDIT),
            (_BAD_KEY, ErrorKind.BAD_KEY),
            (_UNKNOWN_MODEL, ErrorKind.UNKNOWN_MODEL),
            (_CONTEXT_OVERFLOW, ErrorKind.CONTEXT_LENGTH),
            (_REFUSED_CONTENT, ErrorKind.CONTENT_REFUSED),
        ):
            if status not in (408, 409, 425) and pattern.search(body):
                return kind
    if status == 500 and _OVERFLOW_UNDER_500.search(body):
        return ErrorKind.CONTEXT_LENGTH
    if "overloaded_error" in body:
        return ErrorKind.OVERLOADED
    return _KIND_BY_STATUS.get(
        status, ErrorKind.BAD_REQUEST if 300 <= status < 500 else ErrorKind.SERVER_ERROR
    )


def parse_retry_after_s(headers: Mapping[str, str] | None, now: float | None = None) -> float | None:
    """Seconds a server asks us to wait: `retry-after-ms`, or `Retry-After` as seconds or HTTP date."""
    if headers is None:
        return None
    milliseconds = _parse_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _parse_number(value)
    if seconds is not None or not value:
        return seconds
    try:
        moment = parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _parse_number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def make_http_error(
    status: int, body: object, headers: Mapping[str, str] | None, key: str | None
) -> ModelError:
    """The error for a failed HTTP answer, whose body may be parsed or text; the key is cut from its message."""
    text = body if isinstance(body, str) else str(body)
    kind = classify_error(status, text)
    if kind is ErrorKind.BAD_KEY:
        # Providers quote the refused key, in part, in this message; ours leaves it out.
        return ModelError(kind, f"the provider refused the key (HTTP {status})")
    message = f"HTTP {status}: {_read_error_text(body)}"
    wait_s = parse_retry_after_s(headers)
    return ModelError(kind, redact_line(message, key), _retry_info_s(body) if wait_s is None else wait_s)


def make_embedded_error(body: object, key: str | None) -> ModelError:
    """The error that came in place of a reply, under status 200, in a vendor's own form; the key is cut out."""
    error = body.get("error") if isinstance(body, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    return make_http_error(code if isinstance(code, int) and 400 <= code < 600 else 500, body, None, key)


def redirect_error(status: int, target: str | None, key: str | None) -> ModelError:
    """The error for a redirect, which is never followed: the key and the prompt would go along."""
    where = f"redirects to {target}; if that is right, give it as base_url" if target else "names no target"
    return ModelError(ErrorKind.BAD_REQUEST, redact_line(f"HTTP {status}: the server {where}", key))


def _read_error_text(body: object) -> str:
    error: Any = body.get("error", body) if isinstance(body, Mapping) else body
    if not isinstance(error, Mapping):
        return str(error)
    parts = [str(error[part]) for part in ("code", "type", "status", "message") if error.get(part)]
    # FastAPI's errors: a text, or a list that tells where in the request something is wrong.
    detail = error.get("detail")
    if parts or not isinstance(detail, list):
        return " ".join(parts) or str(detail or "")
    items = [item for item in detail if isinstance(item, Mapping)]
    return "; ".join(f"{item.get('loc')}: {item.get('msg')}" for item in items)


def _retry_info_s(body: object) -> float | None:
    """The wait that Google's error body asks for (`google.rpc.RetryInfo`), where it has one."""
    error = body.get("error", body) if isinstance(body, Mapping) else None
    details = error.get("details") if isinstance(error, Mapping) else None
    for item in details if isinstance(details, list) else ():
        delay = item.get("retryDelay") if isinstance(item, Mapping) else None
        seconds = _parse_number(delay.removesuffix("s")) if isinstance(delay, str) else None
        if seconds is not None:
            return seconds
    return None


def redact_line(text: str, key: str | None = None) -> str:
    """A message as one bounded line without the key, without credentials, and fit to be stored."""
    # Cut first, so that what a long text costs is bounded; then hide, or half a key could stay.
    text = text[: 20 * _MESSAGE_LENGTH].encode("utf-8", "replace").decode()
    if key and len(key) >= _SHORTEST_KEY:
        text = text.replace(key, SECRET_MARK)
    return " ".join(mask_address_credentials(mask_key(text, key)).split())[:_MESSAGE_LENGTH]


def translate_error(error: BaseException, key: str | None = None) -> ModelError | None:
    """Translate an SDK's exception; None if it is neither the server's doing nor the network's (a bug).

    Classes are told by name, so that httpx and httpx2 (which SDK uses which changes between
    releases) need not be imported, or even installed. `key` is cut from the message.
    """
    if (ours := find_own_error(error)) is not None:
        return ours
    names, module = _list_class_names(error), type(error).__module__
    network = {"TransportError", "APIConnectionError", "ConnectionError", "StreamError", "DecodingError"}
    if names & (_TIMEOUTS | network):
        return make_network_error(error, key)
    if module.startswith("google.auth"):
        return ModelError(ErrorKind.BAD_KEY, f"no usable Google credentials ({type(error).__name__})")
    if names & {"JSONDecodeError", "UnicodeDecodeError", "RecursionError"}:
        return ModelError(ErrorKind.MALFORMED_REPLY, f"the reply is not JSON ({type(error).__name__})")
    return None


def find_own_error(error: BaseException) -> ModelError | None:
    """The error that our own client raised below an SDK, which wrapped it; None if it raised none."""
    cause: BaseException | None = error
    for _ in range(10):
        if cause is None or isinstance(cause, ModelError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def make_network_error(error: BaseException, key: str | None) -> ModelError:
    """The error for whatever the network raised: a timeout, or no connection. It may quote what a server sent."""
    kind = ErrorKind.TIMEOUT if _list_class_names(error) & _TIMEOUTS else ErrorKind.CONNECTION
    return ModelError(kind, f"{type(error).__name__}: {redact_line(str(error), key)}")


_TIMEOUTS = {"TimeoutException", "APITimeoutError", "TimeoutError", "Timeout"}


def _list_class_names(error: BaseException) -> set[str]:
    return {base.__name__ for base in type(error).__mro__}


_REFUSED_SETTING = re.compile(
    r"deprecated for this model|unsupported (parameter|value)|(is|are) not supported|does not support"
    r"|may only be set to|only the default",
    re.IGNORECASE,
)
_SETTING_FIXES = (
    # OpenAI's newer models take tools together with reasoning under the other API alone.
    (re.compile(r"/v1/responses", re.IGNORECASE), "api", "responses"),
    (re.compile(r"use .?max_completion_tokens", re.IGNORECASE), "max_tokens_field", "max_completion_tokens"),
    (re.compile(r"thinking\W{1,3}type\W{1,3}enabled", re.IGNORECASE), "thinking", "adaptive"),
    (
        re.compile(r"\badaptive\b.{0,20}thinking|thinking.{0,20}\badaptive\b", re.IGNORECASE),
        "thinking",
        "null",
    ),
    (re.compile(r"\btemperature\b", re.IGNORECASE), "temperature", "null"),
    (re.compile(r"\breasoning[._]effort\b", re.IGNORECASE), "reasoning_effort", "null"),
    (re.compile(r"\b(output_config\.)?effort\b", re.IGNORECASE), "effort", "null"),
)
_EXTRA_FIXES = {"adaptive": " model.thinking_budget=null"}


def make_refused_setting_error(name: str, error: ModelError) -> ConfigError | None:
    """The error for a setting that the model does not take, in place of the provider's; None: it is another.

    Every case would meet it, and only the YAML can mend it.
    """
    text = str(error)
    if error.kind is not ErrorKind.BAD_REQUEST or not _REFUSED_SETTING.search(text):
        return None
    for pattern, field, value in _SETTING_FIXES:
        if pattern.search(text):
            mend = f"model.{field}={value}{_EXTRA_FIXES.get(value, '')}"
            return ConfigError(f"Model '{name}' does not take `{field}` as it is ({text}); set {mend}")
    return None
