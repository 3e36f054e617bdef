"""Prices of models, dated, and the cost of one call."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import ChatReply, Usage
from agentsys.models.errors import ModelError

_PER_MILLION = 1_000_000


class Price(BaseModel):
    """US dollars per million tokens, as a provider's price page said on a day.

    litellm's table is no substitute: it drops retired models, and with them the price of old runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    prompt: float = Field(ge=0)
    """Input tokens that were not read from the provider's prompt cache."""
    cached: float | None = Field(default=None, ge=0)
    """Input tokens read from the provider's prompt cache; None: the same as `prompt`."""
    completion: float = Field(ge=0)
    """Output tokens, hidden reasoning included."""
    as_of: datetime.date
    """The day the price was read."""


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """Cost in US dollars of so many tokens; None (unknown, not 0) without a price."""
    if price is None:
        return None
    cached_price = price.prompt if price.cached is None else price.cached
    fresh = usage.prompt - usage.cached
    millionths = fresh * price.prompt + usage.cached * cached_price + usage.completion * price.completion
    return millionths / _PER_MILLION


def priced_reply(
    read: Callable[[], ChatAssistantMessage], usage: Usage, price: Price | None, model_id: object
) -> ChatReply:
    """A reply with what it cost.

    Args:
        read: Gives the message. An answer that turns out to be unusable was paid for, and its error says
            how much.
        usage: Tokens the provider counted.
        price: The model's price.
        model_id: The name under which the provider answered, or nothing.

    Raises:
        ModelError: If `read` raises it; then with usage and cost.
    """
    cost = cost_usd(usage, price)
    try:
        message = read()
    except ModelError as error:
        error.usage = usage
        error.cost_usd = 0.0 if usage == Usage() else cost
        raise
    return ChatReply(message, usage=usage, cost_usd=cost, model_id=str(model_id or ""))
