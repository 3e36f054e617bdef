"""`PostingClient`: posts bodies to one address with what the vendor's SDK prepared once.

For each request an SDK, and `httpx` below it, merge headers, parse addresses and make some thirty objects,
which takes more CPU than the exchange itself. What comes out differs from one request to the next in the
body, its length and the role. So the SDK is asked for two requests beforehand; if one follows from the other,
all others are made alike and go by connections of the pool that the SDK's would have gone to. If not, each
is the SDK's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_TRIALS = ((b"{}", "a"), (b'{"n":"0123456789"}', "bc"))
"""Bodies and roles, each of another length."""


class PostingClient:
    """An SDK's client that posts to one path. Used from many threads.

    Args:
        sdk: The SDK's client, without retries of its own.
        http: The client of `bounded_http` that it sends with.
        path: Path behind the SDK's base address.
        own_header: Name of the header that each request brings along; None: there is none.
    """

    def __init__(self, sdk: Any, http: Any, path: str, own_header: str | None) -> None:
        self.sdk = sdk
        """For what is no post to this path: batches, files."""
        self._http, self._path = http, path
        self._pattern = self._found_pattern(own_header)

    def post(self, body: bytes, own: Mapping[str, str]) -> bytes:
        """Post JSON with the headers of this request's own; the body of the answer.

        Raises:
            ModelError: If the exchange fails; from the SDK it comes as a cause of the SDK's error.
        """
        # A cookie goes along or not by its own rules: path, time, safety of the connection.
        if self._pattern is None or self._http.cookies:
            return self._by_sdk(body, own)
        found: bytes = self._http.exchange(self._pattern.pool, self._pattern.filled(body, own))
        return found

    def _by_sdk(self, body: bytes, own: Mapping[str, str]) -> bytes:
        headers = {"Content-Type": "application/json", **own}
        found: bytes = self.sdk.post(self._path, cast_to=bytes, content=body, options={"headers": headers})
        return found

    def _found_pattern(self, own_header: str | None) -> _Pattern | None:
        """What the SDK's requests have in common; None if they differ in more (a number for each, say)."""
        pattern: _Pattern | None = None
        for body, role in _TRIALS:
            own = {own_header: role} if own_header else {}
            handed = self._http.handed_over(lambda body=body, own=own: self._by_sdk(body, own))
            if handed is None:
                return None
            pattern = pattern or _Pattern(*handed)
            if handed[0] is not pattern.pool or _parts(handed[1]) != _parts(pattern.filled(body, own)):
                return None
        return pattern


@dataclass(frozen=True)
class _Pattern:
    """A request of `httpcore` that others are made after."""

    pool: Any
    """The pool of connections for its address."""
    request: Any

    def filled(self, body: bytes, own: Mapping[str, str]) -> Any:
        """The request with another body and other values of its own headers."""
        said = {name.lower().encode("ascii"): value.encode("ascii") for name, value in own.items()}
        said[b"content-length"] = b"%d" % len(body)
        first = self.request
        made = type(first)(first.method, first.url, content=body, extensions=first.extensions)
        # Set afterwards: that all of it is bytes is known, and would be looked for again.
        made.headers = [(name, said.get(plain, value)) for plain, name, value in self._headers]
        return made

    @cached_property
    def _headers(self) -> list[tuple[bytes, bytes, bytes]]:
        """(name in lower case, name, value)."""
        return [(name.lower(), name, value) for name, value in self.request.headers]


def _parts(request: Any) -> tuple[Any, ...]:
    return request.method, request.url, request.headers, b"".join(request.stream), request.extensions
