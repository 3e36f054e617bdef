"""`AnthropicBatches`: Anthropic's Message Batches: all requests in one body, results as JSON lines.

The vendor keeps no word of ours with a batch, and custom ids are told only with the results. So a batch whose
answer was lost is looked for among those of its time and size, and known for ours once it has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from agentsys.models.batches.door import BatchLine, Outcome
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.sdk_errors import http_error
from agentsys.models.providers.vendor_batches import (
    CLOCKS_DIFFER_S,
    VendorBatches,
    answers,
    cancelled,
    expired,
)
from agentsys.models.providers.wire_text import encode, malformed, mapping_of, read_json

_PATH = "/v1/messages/batches"
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PAGE = 100
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class AnthropicBatches(VendorBatches):
    """Batches of one model."""

    def _submit(self, lines: Sequence[BatchLine], mark: str) -> str:
        # The bodies are encoded already; the SDK's own call would walk through all of them once more.
        content = b'{"requests":[' + b",".join(map(_item, lines)) + b"]}"
        options = {"headers": {"Content-Type": "application/json"}}
        data = self._client.post(_PATH, cast_to=bytes, content=content, options=options)
        return _known_id(mapping_of(read_json(data, self._key)).get("id"))

    def _find(self, mark: str, custom_ids: Sequence[str], since: float) -> str | None:
        open_yet = ""
        for batch in self._client.messages.batches.list(limit=_PAGE):
            if _created(batch) < since - CLOCKS_DIFFER_S:
                break  # the newest come first
            if _size(batch) != len(custom_ids):
                continue
            if batch.processing_status != "ended":
                open_yet = str(batch.id)
            elif any(answers(self._results(_known_id(batch.id)), set(custom_ids), self._key)):
                return str(batch.id)
        if open_yet:
            raise ModelError(ErrorKind.TIMEOUT, f"batch {open_yet} may be ours; it has not ended")
        return None

    def _results(self, batch_id: str) -> bytes:
        # Not from the address that the batch names: the key goes to no other server.
        data: bytes = self._client.get(f"{_PATH}/{batch_id}/results", cast_to=bytes)
        return data

    def _collect(self, batch_id: str, custom_ids: Sequence[str]) -> Mapping[str, Outcome] | None:
        batch = self._client.messages.batches.retrieve(_known_id(batch_id))
        if getattr(batch, "processing_status", None) != "ended":
            return None
        told = answers(self._results(batch_id), set(custom_ids), self._key)
        return {name: self._outcome(mapping_of(answer.get("result"))) for name, answer in told}

    def _outcome(self, result: Mapping[str, Any]) -> Outcome:
        match result.get("type"):
            case "succeeded":
                return encode(result.get("message"))
            case "expired":
                return expired()
            case "canceled":
                return cancelled()
        error = mapping_of(result.get("error"))
        kind = mapping_of(error.get("error")).get("type")
        return http_error(_STATUS.get(str(kind), 500), error, None, self._key)


def _item(line: BatchLine) -> bytes:
    about: dict[str, Any] = {"custom_id": line.custom_id}
    if line.headers:
        about["headers"] = dict(line.headers)
    return encode(about)[:-1] + b',"params":' + line.body + b"}"


def _known_id(found: object) -> str:
    """A batch's id, fit to stand in a path.

    Raises:
        ModelError: If it is not.
    """
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise malformed("the provider gave a batch without a usable id")
    return found


def _created(batch: Any) -> float:
    at = getattr(batch, "created_at", None)
    return at.timestamp() if isinstance(at, datetime) else float("inf")


def _size(batch: Any) -> int:
    counts = batch.request_counts
    parts = (counts.processing, counts.succeeded, counts.errored, counts.canceled, counts.expired)
    return sum(part for part in parts if isinstance(part, int))
