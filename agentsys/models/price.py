"""Prices of models, dated, and the cost of one call."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import ChatReply, Usage
from agentsys.models.errors import ErrorKind, ModelError

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
    written: float | None = Field(default=None, ge=0)
    """Input tokens written to that cache, where that has a price of its own; None: the same as `prompt`."""
    completion: float = Field(ge=0)
    """Output tokens, hidden reasoning included."""
    as_of: datetime.date
    """The day the price was read."""

    def max_usd(self, prompt: float, completion: float) -> float:
        """Cost of so many tokens where none of the prompt is in the provider's cache."""
        dearest = max(self.prompt, self.written or 0.0)
        return (prompt * dearest + completion * self.completion) / _PER_MILLION


def cost_usd(usage: Usage, price: Price | None) -> float | None:
    """Cost in US dollars of so many tokens; None (unknown, not 0) without a price or without a count."""
    if price is None or usage.uncounted:
        return None
    cached_price = price.prompt if price.cached is None else price.cached
    written_price = price.prompt if price.written is None else price.written
    fresh = usage.prompt - usage.cached - usage.written
    inputs = fresh * price.prompt + usage.cached * cached_price + usage.written * written_price
    millionths = inputs + usage.completion * price.completion
    return millionths / _PER_MILLION


def price_reply(
    read: Callable[[], ChatAssistantMessage],
    usage: Usage,
    price: Price | None,
    model_id: object,
    *,
    cut: bool = False,
) -> ChatReply:
    """A reply with what it cost.

    Args:
        read: Gives the message. An answer that turns out to be unusable was paid for, and its error says
            how much.
        usage: Tokens the provider counted.
        price: The model's price.
        model_id: The name under which the provider answered, or nothing.
        cut: Whether the provider says that the answer ended at a bound on its tokens.

    Raises:
        ModelError: If `read` raises it; then with usage and cost. What is malformed because it was cut is
            `CUT_REPLY`: asked again, it would be cut at the same place.
    """
    cost = cost_usd(usage, price)
    try:
        message = read()
    except ModelError as raised:
        error = truncated_reply_error(usage) if cut and raised.kind is ErrorKind.MALFORMED_REPLY else raised
        # An answer that cannot be used and says nothing of its tokens counts as none, as an error page does.
        error.usage = Usage() if usage.uncounted else usage
        error.cost_usd = 0.0 if error.usage == Usage() else cost
        raise error from None
    notes = (CUT_NOTE,) if cut else ()
    return ChatReply(message, usage=usage, cost_usd=cost, model_id=str(model_id or ""), notes=notes, cut=cut)


CUT_NOTE = "a reply ended at the bound on its tokens that was asked for"


def truncated_reply_error(usage: Usage) -> ModelError:
    """The error for a reply that a bound on tokens cut short: an answer, or a call, that is not whole."""
    after = "" if usage.uncounted else f" after {usage.completion:,} tokens"
    return ModelError(
        ErrorKind.CUT_REPLY,
        f"the reply was cut at a bound on output tokens{after}; raise model.max_tokens, or the server's own",
    )
