"""`Batched`: a provider whose requests go out in batches; stands in its place below all other wrappers."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from typing import Any

from agentsys.models.batches.collector import BatchAnswer, Collector
from agentsys.models.batches.door import Batchable
from agentsys.models.chat import ChatReply, ChatRequest, Scene, Usage
from agentsys.models.errors import ModelError
from agentsys.models.trace import current_tracer
from agentsys.models.wrappers.cache import RequestKeys, digest


class Batched:
    """A provider that is asked through a collector. Made anew for each case.

    A request is known by the key that the cache has for it, so that cases which would share a reply share a
    request; without a cache each case has its own. What a run asked for before it was killed is known by the
    same name to the next one.

    Args:
        provider: The provider.
        collector: Collector of the model's requests.
        price: Share of the model's price that a request costs.
        keys: The keys of this case's requests.
        scene: The case, where replies are not shared between cases; None: they are (there is a cache).
    """

    def __init__(
        self,
        provider: Batchable,
        collector: Collector,
        price: float,
        keys: RequestKeys,
        scene: Scene | None = None,
    ) -> None:
        self.provider = provider
        self._collector, self._price, self._keys = collector, price, keys
        self._scene = None if scene is None else asdict(scene)
        self._answered: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The provider's name."""
        return self.provider.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Have a request sent with others, and wait for its reply.

        Raises:
            ModelError: As the provider does for a single request.
            ConfigError: If the provider's server has no batches.
        """
        place = self._place(request)
        # What came, and could not be used, is asked for again under another name; an error is not paid for.
        line = self.provider.batch_line(digest([place, self._answered[place]])[:32], request)
        handed = self._collector.answer(line)
        if not isinstance(handed.outcome, ModelError):
            self._answered[place] += 1
        return self._read(request, handed)

    def _place(self, request: ChatRequest) -> str:
        key = self._keys.next(request)
        return key if self._scene is None else digest([key, self._scene, current_tracer().case])

    def _read(self, request: ChatRequest, handed: BatchAnswer) -> ChatReply:
        def fetched() -> Any:
            if isinstance(handed.outcome, ModelError):
                raise handed.outcome
            return handed.outcome

        try:
            reply = self.provider.answered(request, fetched)
        except ModelError as error:
            error.cost_usd = self._cost(error.cost_usd)
            if handed.paid_before:
                error.usage, error.cost_usd = Usage(), 0.0
            raise
        notes = (*reply.notes, f"answered in a batch, at {self._price:.0%} of the price")
        if handed.paid_before:
            return replace(reply, notes=notes, cost_usd=0.0, attempts=0, from_cache=True)
        return replace(reply, notes=notes, cost_usd=self._cost(reply.cost_usd))

    def _cost(self, cost_usd: float | None) -> float | None:
        return None if cost_usd is None else cost_usd * self._price
