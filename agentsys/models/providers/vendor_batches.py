"""`VendorBatches`: what the batches of all vendors share: errors, and JSON lines of results."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from agentsys.errors import ConfigError
from agentsys.models.batches.door import BatchLine, Outcome
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.sdk_errors import as_model_errors
from agentsys.models.providers.wire_text import mapping_of, read_json

_UNKNOWN = re.compile(r"\w+: HTTP (404|405|501)\b")
CLOCKS_DIFFER_S = 3600.0
"""A vendor's clock may be behind ours by so much."""


class VendorBatches(ABC):
    """Batches of one model: a `BatchDoor`, less what differs from vendor to vendor.

    Args:
        client: The SDK's client.
        key: The key in use, to be cut out of whatever is kept.
    """

    def __init__(self, client: Any, key: str | None) -> None:
        self._client, self._key = client, key

    def submit(self, lines: Sequence[BatchLine], mark: str) -> str:
        """Send a batch; see `BatchDoor`."""
        with _asked():
            return self._submit(lines, mark)

    def find(self, mark: str, custom_ids: Sequence[str], since: float) -> str | None:
        """Look for a batch that may have been sent; see `BatchDoor`."""
        with _asked():
            return self._find(mark, custom_ids, since)

    def collect(self, batch_id: str, custom_ids: Sequence[str]) -> Mapping[str, Outcome] | None:
        """Give what came of every request; see `BatchDoor`."""
        try:
            with as_model_errors():
                return self._collect(batch_id, custom_ids)
        except ModelError as error:
            if not _is_unknown(error):
                raise
            lost = f"the provider has no results of batch {batch_id} any more"
            return dict.fromkeys(custom_ids, ModelError(ErrorKind.SERVER_ERROR, lost))

    @abstractmethod
    def _submit(self, lines: Sequence[BatchLine], mark: str) -> str: ...

    @abstractmethod
    def _find(self, mark: str, custom_ids: Sequence[str], since: float) -> str | None: ...

    @abstractmethod
    def _collect(self, batch_id: str, custom_ids: Sequence[str]) -> Mapping[str, Outcome] | None: ...


def answers(data: bytes, wanted: Collection[str], key: str | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(custom id, what the file says of it) for every line that is about one of our requests.

    Lines that cannot be read are passed over: their requests then have no answer.

    Args:
        data: The file.
        wanted: Our custom ids; a line of any other is none of ours.
        key: The key in use, to be cut out of whatever is kept.
    """
    for line in data.splitlines():
        try:
            found = mapping_of(read_json(line, key)) if line.strip() else {}
        except ModelError:
            continue
        custom_id = found.get("custom_id")
        if isinstance(custom_id, str) and custom_id in wanted:
            yield custom_id, found


def expired() -> ModelError:
    """The error for a request that the vendor did not come to in its time: as one that timed out."""
    return ModelError(ErrorKind.TIMEOUT, "the batch expired before this request was answered")


def cancelled() -> ModelError:
    """The error for a request in a batch that somebody cancelled, which is not for us to undo."""
    return ModelError(ErrorKind.BAD_REQUEST, "the batch was cancelled at the provider before it was answered")


def _is_unknown(error: ModelError) -> bool:
    """Whether a server knows nothing under the address it was asked at."""
    return _UNKNOWN.match(str(error)) is not None


@contextmanager
def _asked() -> Iterator[None]:
    """Turn what an SDK raises inside the block into our errors; our own where the server takes no batches."""
    try:
        with as_model_errors():
            yield
    except ModelError as error:
        if not _is_unknown(error):
            raise
        told = f"This model's server takes no batches ({error}); set model.batch=null."
        raise ConfigError(told) from None
