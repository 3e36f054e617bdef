"""`OpenAIBatches`: OpenAI's Batch API. A file of requests goes up; replies and errors come back as files.

A request that failed, or that the day was too short for, stands in the file of errors. What is sent carries
our mark as metadata, by which a batch is found whose answer was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from agentsys.models.batches.door import BatchLine, Outcome
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.sdk_errors import http_error, one_line
from agentsys.models.providers.vendor_batches import (
    CLOCKS_DIFFER_S,
    VendorBatches,
    answers,
    cancelled,
    expired,
)
from agentsys.models.providers.wire_text import encode, malformed, mapping_of

_LOG = logging.getLogger(__name__)

_MARK = "agentsys_batch"
_UNDER_WAY = {"validating", "in_progress", "finalizing", "cancelling"}
_ENDED = {"completed", "expired", "cancelled"}
_PAGE = 100


class OpenAIBatches(VendorBatches):
    """Batches of one model.

    Args:
        client: The SDK's client.
        endpoint: Path that the requests are for, `/v1/chat/completions` or `/v1/responses`.
        key: The key in use, to be cut out of whatever is kept.
    """

    def __init__(self, client: Any, endpoint: str, key: str | None) -> None:
        super().__init__(client, key)
        self._endpoint = endpoint

    def _submit(self, lines: Sequence[BatchLine], mark: str) -> str:
        content = b"".join(map(self._line, lines))
        file = self._client.files.create(file=(f"{mark}.jsonl", content), purpose="batch")
        made = self._client.batches.create(
            input_file_id=file.id,
            endpoint=self._endpoint,
            completion_window="24h",
            metadata={_MARK: mark},
        )
        return _known_id(made)

    def _line(self, line: BatchLine) -> bytes:
        about: dict[str, Any] = {"custom_id": line.custom_id, "method": "POST", "url": self._endpoint}
        if line.headers:
            about["headers"] = dict(line.headers)
        return encode(about)[:-1] + b',"body":' + line.body + b"}\n"

    def _find(self, mark: str, custom_ids: Sequence[str], since: float) -> str | None:
        for batch in self._client.batches.list(limit=_PAGE):
            if mapping_of(getattr(batch, "metadata", None)).get(_MARK) == mark:
                return _known_id(batch)
            if (getattr(batch, "created_at", None) or 0) < since - CLOCKS_DIFFER_S:
                break  # the newest come first
        return None

    def _collect(self, batch_id: str, custom_ids: Sequence[str]) -> Mapping[str, Outcome] | None:
        batch = self._client.batches.retrieve(batch_id)
        status = getattr(batch, "status", None)
        if status == "failed":
            return _failed(batch, custom_ids, self._key)
        if status not in _ENDED:
            if status not in _UNDER_WAY:
                _LOG.warning("batch %s: unknown status %r, taken for under way", batch_id, status)
            return None
        return self._outcomes(batch, custom_ids)

    def _outcomes(self, batch: Any, custom_ids: Sequence[str]) -> dict[str, Outcome]:
        unanswered = {"expired": expired(), "cancelled": cancelled()}.get(batch.status)
        found: dict[str, Outcome] = {} if unanswered is None else dict.fromkeys(custom_ids, unanswered)
        for file_id in (batch.error_file_id, batch.output_file_id):
            if file_id:
                data = self._client.files.content(file_id).content
                told = answers(data, set(custom_ids), self._key)
                found.update((name, self._outcome(answer)) for name, answer in told)
        return found

    def _outcome(self, answer: Mapping[str, Any]) -> Outcome:
        response, error = mapping_of(answer.get("response")), mapping_of(answer.get("error"))
        status, body = response.get("status_code"), response.get("body")
        if isinstance(status, int) and 200 <= status < 300 and not error:
            return encode(body)
        if error.get("code") == "batch_expired":
            return expired()
        if error.get("code") == "batch_cancelled":
            return cancelled()
        return http_error(status if isinstance(status, int) else 500, body or answer, None, self._key)


def _known_id(batch: Any) -> str:
    found = getattr(batch, "id", None)
    if not isinstance(found, str) or not found:
        raise malformed("the provider gave a batch without an id")
    return found


def _failed(batch: Any, custom_ids: Sequence[str], key: str | None) -> dict[str, Outcome]:
    """What a batch that was refused as a whole means for each request; none of them was answered.

    Errors that name a line are about that request; the others may be sent again without it.
    """
    told = getattr(getattr(batch, "errors", None), "data", None) or []
    errors = [(getattr(one, "line", None), _error(one, key)) for one in told]
    by_line = {line: error for line, error in errors if isinstance(line, int)}
    general = next((error for line, error in errors if not isinstance(line, int)), None)
    rest = general or ModelError(
        ErrorKind.SERVER_ERROR if by_line else ErrorKind.BAD_REQUEST, "the provider refused the whole batch"
    )
    return {name: by_line.get(number, rest) for number, name in enumerate(custom_ids, start=1)}


def _error(error: Any, key: str | None) -> ModelError:
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    if code == "token_limit_exceeded":
        # Too much is waiting already: a rate limit of batches, which passes.
        return ModelError(ErrorKind.RATE_LIMITED, one_line(f"{code} {message}", key))
    return http_error(400, {"error": {"code": code, "message": message}}, None, key)
