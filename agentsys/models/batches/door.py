"""The border between the collector and a vendor: what goes into a batch, and what a vendor has to offer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.errors import ModelError


class BatchPolicy(BaseModel):
    """How requests are collected; `batch:` in a model's YAML (`true`: all as it stands here)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests: int = Field(default=1000, ge=1, le=50_000)
    """Most requests in a batch; with so many it is sent at once."""
    wait_s: float = Field(default=120.0, ge=0)
    """Longest time that a request waits for others."""
    quiet_s: float = Field(default=1.0, ge=0)
    """A batch is sent when every case under way has waited for so long."""
    poll_s: float = Field(default=30.0, gt=0)
    """Longest time between two looks whether a batch has ended; the first ones come sooner."""
    price: float = Field(default=0.5, ge=0)
    """Share of the model's price that a request in a batch costs."""


@dataclass(frozen=True)
class BatchLine:
    """One request in a batch."""

    custom_id: str
    """Tells it from the others: 64 characters at most, of `a-z0-9`."""
    body: bytes
    """What would have been posted, as JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """What would have gone along with it, for our own served models."""


Outcome = bytes | ModelError
"""What came of a request: the body of its reply, or the error that a single request would have met."""


class BatchDoor(Protocol):
    """A vendor's batches. Called from one thread at a time."""

    def submit(self, lines: Sequence[BatchLine], mark: str) -> str:
        """Send a batch.

        Args:
            lines: Its requests.
            mark: Word of ours under which `find` may look for it.

        Returns:
            The vendor's id of the batch.

        Raises:
            ModelError: If it was refused, or nobody knows.
            ConfigError: If this server has no batches.
        """
        ...

    def find(self, mark: str, custom_ids: Sequence[str], since: float) -> str | None:
        """Look for a batch that may have been sent: the run was killed, or the answer was lost.

        Args:
            mark: What `submit` was given.
            custom_ids: Of its requests, in order.
            since: Seconds since the epoch, before it was sent.

        Returns:
            Its id; None if there is none.

        Raises:
            ModelError: If that cannot be told now.
            ConfigError: If this server has no batches.
        """
        ...

    def collect(self, batch_id: str, custom_ids: Sequence[str]) -> Mapping[str, Outcome] | None:
        """Give what came of every request, by custom id; None while the batch is under way.

        Raises:
            ModelError: If that cannot be told now.
        """
        ...


@runtime_checkable
class Batchable(Protocol):
    """A provider whose requests may go out in batches."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    def batch_door(self) -> BatchDoor:
        """The vendor's batches."""
        ...

    def batch_line(self, custom_id: str, request: ChatRequest) -> BatchLine:
        """A request as one of a batch."""
        ...

    def answered(self, request: ChatRequest, fetch: Callable[[], Any]) -> ChatReply:
        """Read the reply to a request as that to a single one is read.

        Args:
            request: The request.
            fetch: Gives the body of the reply, or raises what went wrong.

        Raises:
            ModelError, ConfigError: As `complete` does.
        """
        ...
