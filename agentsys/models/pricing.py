"""Prices of models, dated, and their last days; the cost of one call, and token counts where a model counts none.

The estimate is from characters: prose has more of them per token than data, and tools are counted in the
form in which models are shown them, not as the JSON schema that is sent. It is within 10% of OpenAI's
tokenizers over AgentDojo's benign cases, for a plain agent and for AgentSys; other vendors' differ more.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

from agentdojo.types import ChatAssistantMessage, ChatMessage
from pydantic import BaseModel, ConfigDict, Field

from agentsys.models.chat import (
    ChatReply,
    ChatRequest,
    Usage,
    text_of,
)

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


PROSE_CHARS_PER_TOKEN = 4.2
"""Characters per token of system messages and descriptions of tools."""
DATA_CHARS_PER_TOKEN = 3.5
"""Characters per token of everything else: what users ask, tools return and models answer."""
TOKENS_PER_MESSAGE = 4
"""Tokens around each message of a conversation, and around each call in one."""


def pick_usage(request: ChatRequest, reply: ChatReply) -> Usage:
    """The usage that a model reported, or else an estimate."""
    counted = reply.usage != Usage() and not reply.usage.uncounted
    return reply.usage if counted else estimate_usage(request, reply.message)


def estimate_usage(request: ChatRequest, reply: ChatAssistantMessage) -> Usage:
    """Estimate what a real model might have counted for this call."""
    tools = sum(len(tool.signature) for tool in request.tools) / PROSE_CHARS_PER_TOKEN
    prompt = sum(map(_estimate_message_tokens, request.messages)) + tools
    return Usage(prompt=round(prompt), completion=round(_estimate_message_tokens(reply)))


def _estimate_message_tokens(message: ChatMessage) -> float:
    text = len(text_of(message))
    if message["role"] == "system":
        return TOKENS_PER_MESSAGE + text / PROSE_CHARS_PER_TOKEN
    if message["role"] == "tool":
        return TOKENS_PER_MESSAGE + (len(message["error"] or "") + text) / DATA_CHARS_PER_TOKEN
    calls = message["tool_calls"] or () if message["role"] == "assistant" else ()
    size = sum(len(call.function) + len(json.dumps(dict(call.args), default=str)) for call in calls)
    return TOKENS_PER_MESSAGE * (1 + len(calls)) + (text + size) / DATA_CHARS_PER_TOKEN


_SOON = datetime.timedelta(days=30)


def describe_last_days(configs: Iterable[Mapping[str, Any]], today: datetime.date) -> list[str]:
    """A line for each model that its vendor has switched off, or will within 30 days."""
    table = json.loads((files("agentsys.models") / "last_days.json").read_text(encoding="utf-8"))
    # A server of one's own may call anything by such an id.
    asked = {str(config.get("model_id")): config["name"] for config in configs if not config.get("base_url")}
    lines = []
    for model_id in asked.keys() & table["models"].keys():
        day, successor = table["models"][model_id]
        if datetime.date.fromisoformat(day) <= today + _SOON:
            mend = f"; take model={successor} in its place" if successor else ""
            has = "had" if datetime.date.fromisoformat(day) < today else "has"
            source = f"by litellm's table ({table['litellm']})"
            lines.append(
                f"Model '{asked[model_id]}': {model_id} {has} its last day on {day}, {source}{mend}."
            )
    return sorted(lines)
