"""Translates an SDK's exceptions into our closed set of kinds. The table is in docs/errors.md.

The SDKs' own classes are not trusted for this: they differ between releases and vendors (529 is
an `InternalServerError` in one and not in another), so status, code and wording decide.
"""

from __future__ import annotations

import math
import re
import time
import tomllib
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from importlib.resources import files

from agentsys.errors import ConfigError
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.providers.wire_parts import as_mapping, find_page_title
from agentsys.models.secrets import SECRET_MARK, mask_address_credentials, mask_key, mask_other_secrets

_WORDINGS = tomllib.loads(files(__package__).joinpath("error_wordings.toml").read_text(encoding="utf-8"))


def _compile(wordings: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(wordings), re.IGNORECASE | re.DOTALL)


_MEANINGS = {ErrorKind(kind): _compile(wordings) for kind, wordings in _WORDINGS["meanings"].items()}
_SIGNS = {name: _compile(wordings) for name, wordings in _WORDINGS["signs"].items()}
_SETTING_FIXES = {_compile([wording]): mend for wording, mend in _WORDINGS["setting_fixes"].items()}
_TOKENS_A_MINUTE = re.compile(r"\blimit:? ([\d,]{1,15})\b.{0,80}?\brequested:? ([\d,]{1,15})", re.IGNORECASE)
_KIND_BY_STATUS = {
    **dict.fromkeys((409, 424, 425, 499), ErrorKind.SERVER_ERROR),
    **dict.fromkeys((408, 504, 524), ErrorKind.TIMEOUT),
    **dict.fromkeys((498, 503, 529), ErrorKind.OVERLOADED),
    **dict.fromkeys((403, 451), ErrorKind.FORBIDDEN),
    401: ErrorKind.BAD_KEY,
    402: ErrorKind.NO_CREDIT,
    404: ErrorKind.UNKNOWN_MODEL,
    413: ErrorKind.TOO_LARGE,
    429: ErrorKind.RATE_LIMITED,
}
_OF_AN_ACCOUNT = (ErrorKind.NO_CREDIT, ErrorKind.BAD_KEY)
_HEEDED = {
    **dict.fromkeys((401, 402, 408, 409, 425), _OF_AN_ACCOUNT),
    429: (ErrorKind.NO_CREDIT, ErrorKind.TOO_LARGE, ErrorKind.FORBIDDEN, ErrorKind.OVERLOADED),
    500: (ErrorKind.NO_CREDIT, ErrorKind.OVERLOADED),
}
"""Statuses that say much by themselves (500: all from there on) -> wordings that count besides."""

_MESSAGE_LENGTH = 300
_SHORTEST_KEY = 4
"""Shorter keys are stand-ins, whose letters stand in any text."""


def classify_error(status: int, body: str) -> ErrorKind:
    """The kind of a failed HTTP answer by its status and what its body says, in one text.

    Status 200: an error in place of a reply. A web page says nothing besides its status.
    """
    if (status == 200 or status >= 400) and not find_page_title(body):
        if status >= 500 and _SIGNS["overflow_under_500"].search(body):
            return ErrorKind.CONTEXT_LENGTH
        heeded = _HEEDED.get(min(status, 500), tuple(_MEANINGS))
        if ErrorKind.TOO_LARGE in heeded and _never_fits(body):
            return ErrorKind.TOO_LARGE
        for kind in heeded:
            if _MEANINGS[kind].search(body):
                return kind
        if status == 200 and _SIGNS["wrong_request"].search(body):
            return ErrorKind.BAD_REQUEST
    wrong = 300 <= status < 500
    return _KIND_BY_STATUS.get(status, ErrorKind.BAD_REQUEST if wrong else ErrorKind.SERVER_ERROR)


def _never_fits(body: str) -> bool:
    """True if a request alone is above a limit of tokens a minute: asked again it would be above it, too."""
    match = _TOKENS_A_MINUTE.search(body)
    limit, requested = (int(text.replace(",", "") or 0) for text in match.groups()) if match else (0, 0)
    return 0 < limit < requested


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
    body = _unwrap(body)
    kind = classify_error(status, body if isinstance(body, str) else " ".join(_list_statements(body)))
    if kind is ErrorKind.BAD_KEY:
        # Providers quote the refused key, in part, in this message; ours leaves it out.
        return ModelError(kind, f"the provider refused the key (HTTP {status})")
    message = f"HTTP {status}: {_read_error_text(body)}"
    wait_s = parse_retry_after_s(headers)
    return ModelError(kind, redact_line(message, key), _retry_info_s(body) if wait_s is None else wait_s)


def make_embedded_error(body: object, key: str | None) -> ModelError:
    """The error that came in place of a reply, under status 200, in a vendor's own form; the key is cut out."""
    levels = (as_mapping(as_mapping(_unwrap(body)).get(name)) for name in ("error", "base_resp"))
    codes = (
        level.get(name) for level in (*levels, as_mapping(body)) for name in ("code", "status", "http_code")
    )
    known = (int(text) for text in map(str, codes) if re.fullmatch("[45][0-9]{2}", text))
    return make_http_error(next(known, 200), body, None, key)


def redirect_error(status: int, target: str | None, key: str | None) -> ModelError:
    """The error for a redirect, which is never followed: the key and the prompt would go along."""
    where = f"redirects to {target}; if that is right, give it as base_url" if target else "names no target"
    return ModelError(ErrorKind.BAD_REQUEST, redact_line(f"HTTP {status}: the server {where}", key))


def _unwrap(body: object) -> object:
    """A body; of a list of one error, as Gemini's compatible endpoint sends it, that one."""
    return body[0] if isinstance(body, list) and body else body


_ECHOES = frozenset({"failed_generation", "input", "ctx", "messages", "prompt", "user_id", "doc_url"})
"""Fields in which servers send back what a model or a user wrote: they decide nothing."""
_MAX_STATEMENTS = 100


def _list_statements(value: object) -> list[str]:
    """The texts and numbers of an error body, at any depth."""
    if isinstance(value, Mapping):
        parts = [_list_statements(item) for key, item in value.items() if key not in _ECHOES]
    elif isinstance(value, list):
        parts = [_list_statements(item) for item in value[:_MAX_STATEMENTS]]
    else:
        return [] if value is None or isinstance(value, bool) else [str(value)]
    return [text for some in parts for text in some][:_MAX_STATEMENTS]


def _read_error_text(body: object) -> str:
    if isinstance(body, str):
        return find_page_title(body) or body
    error = as_mapping(body).get("error", body)
    if not isinstance(error, Mapping):
        return str(error)
    parts = [str(error[part]) for part in ("code", "type", "status", "message") if error.get(part)]
    # OpenRouter's, of the provider behind it, which alone says what went wrong.
    behind = as_mapping(error.get("metadata"))
    parts += [str(behind[part]) for part in ("provider_name", "raw", "reasons") if behind.get(part)]
    # FastAPI's errors: a text, or a list that tells where in the request something is wrong.
    detail = error.get("detail")
    if isinstance(detail, list) and not parts:
        items = [item for item in detail if isinstance(item, Mapping)]
        return "; ".join(f"{item.get('loc')}: {item.get('msg')}" for item in items)
    return " ".join(parts if error.get("message") else _list_statements(error))


def _retry_info_s(body: object) -> float | None:
    """The wait that Google's error body asks for (`google.rpc.RetryInfo`), where it has one."""
    details = as_mapping(as_mapping(body).get("error", body)).get("details")
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
    masked = mask_address_credentials(mask_other_secrets(mask_key(text, key)))
    return " ".join(masked.split())[:_MESSAGE_LENGTH]


def translate_error(error: BaseException, key: str | None = None) -> ModelError | None:
    """Translate an SDK's exception; None if it is neither the server's doing nor the network's (a bug).

    Classes are compared by name, so that neither httpx nor httpx2 must be imported or installed: which of the two
    an SDK uses changes between its releases. `key` is cut from the message.
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


def make_refused_setting_error(name: str, error: ModelError) -> ConfigError | None:
    """The error for a setting that the model does not take, in place of the provider's; None: it is another.

    Every case would meet it, and only the YAML can mend it.
    """
    text = str(error)
    if error.kind is not ErrorKind.BAD_REQUEST or not _SIGNS["refused_setting"].search(text):
        return None
    mend = next((mend for wording, mend in _SETTING_FIXES.items() if wording.search(text)), None)
    if mend is None:
        return None
    field = mend.removeprefix("model.").partition("=")[0]
    return ConfigError(f"Model '{name}' does not take `{field}` as it is ({text}); set {mend}")
