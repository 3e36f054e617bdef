"""JSON lines of a batch's results, and the errors that its requests may end in, of any vendor."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agentsys.errors import ConfigError
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.providers.wire_text import mapping_of, read_json

_UNKNOWN = re.compile(r"\w+: HTTP (404|405|501)\b")
CLOCKS_DIFFER_S = 3600.0
"""A vendor's clock may be behind ours by so much."""


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


def gone(batch_id: str) -> ModelError:
    """The error for a batch that the vendor does not know any more."""
    return ModelError(ErrorKind.SERVER_ERROR, f"the provider has no results of batch {batch_id} any more")


def is_unknown(error: ModelError) -> bool:
    """Whether a server knows nothing under the address it was asked at."""
    return _UNKNOWN.match(str(error)) is not None


def without_batches(error: ModelError) -> ModelError | ConfigError:
    """A refusal to take a batch; our own where the server has no such address."""
    if not is_unknown(error):
        return error
    return ConfigError(f"This model's server takes no batches ({error}); set model.batch=null.")
