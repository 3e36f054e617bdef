"""`OpenAIEmbeddings`: OpenAI's embeddings, and every server that speaks their format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import ValidationError

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of, user
from agentsys.models.pricing import Price, cost_usd
from agentsys.models.providers.openai import OpenAIModel
from agentsys.models.providers.openai_wire import parse_body
from agentsys.models.providers.wire_parts import (
    as_mapping,
    clean_json,
    encode_for_wire,
    malformed_reply,
    token_count,
)
from agentsys.models.wrappers.accounting import MeteredModel, RecordingModel
from agentsys.models.wrappers.rate_limit import RateLimitedModel, RateLimiter
from agentsys.models.wrappers.retry import RetryingModel, RetryPolicy

EMBEDDING_ROLE = "melon_embedding"
"""The role embedding requests are booked under."""

MOST_BYTES = 8000
"""Of one text. The service takes 8192 tokens, and a token is at least one byte: what is longer is cut."""
MOST_TEXTS = 32
"""In one request, which may hold 300,000 tokens in all."""


class OpenAIEmbeddings:
    """Embeds through OpenAI's SDK; asked again after errors that pass, and booked in the case's trace.

    Args:
        model: The embedding model's id.
        api_key_env: Variable that holds the key; None for a server that wants none.
        base_url: Address of another server, `/v1` included; None for OpenAI's.
        timeout_s: Seconds until a whole reply must be there.
        price: US dollars per million tokens, as in a model's YAML; None: cost is not known.
        retry: The patience to ask again with, as in a model's YAML; None: that of models.

    Raises:
        ConfigError: If the key's variable is not set, or `price` or `retry` is malformed.
    """

    name = "openai"

    def __init__(
        self,
        model: str = "text-embedding-3-large",
        api_key_env: str | None = "OPENAI_API_KEY",
        *,
        base_url: str | None = None,
        timeout_s: float = 60.0,
        price: Mapping[str, Any] | None = None,
        retry: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            priced = None if price is None else Price.model_validate(dict(price))
            policy = RetryPolicy.model_validate(dict(retry or {}))
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(f"melon: openai: {first['loc'][0]}: {first['msg']}.") from None
        endpoint = EmbeddingEndpoint(
            model, model, api_key_env, base_url=base_url, timeout_s=timeout_s, price=priced
        )
        self._model = RecordingModel(
            RetryingModel(MeteredModel(RateLimitedModel(endpoint, RateLimiter())), policy)
        )

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order.

        Raises:
            ModelError: If the service failed for good.
        """
        vectors: list[list[float]] = []
        for start in range(0, len(texts), MOST_TEXTS):
            batch = [user(_fit_text(text)) for text in texts[start : start + MOST_TEXTS]]
            reply = self._model.complete(ChatRequest(batch, role=EMBEDDING_ROLE))
            vectors += json.loads(text_of(reply.message))
        return vectors


@dataclass(repr=False, eq=False, kw_only=True)
class EmbeddingEndpoint(OpenAIModel):
    """One HTTP request per question, in the shape of a chat model, so that our wrappers fit around it.

    The request's messages are the texts; the reply's text is the vectors, as JSON.
    """

    _path: ClassVar[str] = "/embeddings"

    def _encode_body(self, request: ChatRequest) -> bytes:
        texts = [text_of(message) for message in request.messages]
        return encode_for_wire({"model": self.model_id, "input": texts, "encoding_format": "float"})

    def _read_reply(self, answer: bytes, request: ChatRequest) -> ChatReply:
        return _read_vectors(parse_body(answer, self._key), len(request.messages), self.model_id, self.price)


def _read_vectors(answer: Mapping[str, Any], count: int, model: str, price: Price | None) -> ChatReply:
    rows = answer.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        raise malformed_reply(f"the embedding service did not answer with {count} vectors")
    by_place = {str(as_mapping(row).get("index")): as_mapping(row).get("embedding") for row in rows}
    vectors = [by_place.get(str(place)) for place in range(count)]
    if not all(isinstance(vector, list) for vector in vectors):
        raise malformed_reply("the embedding service left out a vector")
    usage = Usage(prompt=token_count(as_mapping(answer.get("usage")).get("prompt_tokens")))
    return ChatReply(
        assistant(json.dumps(vectors)),
        usage,
        cost_usd(usage, price),
        model_id=str(answer.get("model") or model),
    )


def _fit_text(text: str) -> str:
    """The text without lone surrogates and not longer than the service takes."""
    return str(clean_json(text)).encode()[:MOST_BYTES].decode("utf-8", "ignore")
