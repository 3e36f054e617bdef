"""`OpenAIEmbeddings`: OpenAI's embeddings, and every server that speaks their format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of, user
from agentsys.models.price import Price, cost_usd
from agentsys.models.providers.api_key import read_key
from agentsys.models.providers.bounded_http import Bounds, bounded_client
from agentsys.models.providers.openai_wire import as_object
from agentsys.models.providers.sdk_errors import transport_error
from agentsys.models.providers.wire_text import count_of, encode, malformed, mapping_of, speakable
from agentsys.models.wrappers.booked import Booked
from agentsys.models.wrappers.recorded import Recorded
from agentsys.models.wrappers.retry import Gate, Retried, RetryPolicy

ROLE = "melon_embedding"
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
        retry: How patiently it is asked again; None: as models are.

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
        endpoint = EmbeddingEndpoint(model, api_key_env, base_url, timeout_s, priced)
        self._model = Recorded(Retried(Booked(endpoint), policy, gate=Gate()))

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order.

        Raises:
            ModelError: If the service failed for good.
        """
        vectors: list[list[float]] = []
        for start in range(0, len(texts), MOST_TEXTS):
            batch = [user(_fitting(text)) for text in texts[start : start + MOST_TEXTS]]
            reply = self._model.complete(ChatRequest(batch, role=ROLE))
            vectors += json.loads(text_of(reply.message))
        return vectors


class EmbeddingEndpoint:
    """One HTTP request per question, in the shape of a chat model, so that our wrappers fit around it.

    The request's messages are the texts; the reply's text is the vectors, as JSON.
    """

    def __init__(
        self, model: str, api_key_env: str | None, base_url: str | None, timeout_s: float, price: Price | None
    ) -> None:
        key = read_key(model, api_key_env)
        import openai  # 0.9 s of CPU: only where it is really used

        self.name = model
        self.price = price
        self._key = key
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=base_url or "https://api.openai.com/v1",
            max_retries=0,
            timeout=timeout_s,
            http_client=bounded_client(openai.DefaultHttpxClient, Bounds(timeout_s), key),
        )

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask for the vectors of the messages.

        Raises:
            ModelError: If the request fails or the reply is not one.
        """
        texts = [text_of(message) for message in request.messages]
        body = encode({"model": self.name, "input": texts, "encoding_format": "float"})
        headers = {"Content-Type": "application/json"}
        try:
            data = self._client.post("/embeddings", cast_to=bytes, content=body, options={"headers": headers})
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            raise transport_error(error) or error from None
        return _read(as_object(data, self._key), len(texts), self.name, self.price)


def _read(answer: Mapping[str, Any], count: int, model: str, price: Price | None) -> ChatReply:
    rows = answer.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        raise malformed(f"the embedding service did not answer with {count} vectors")
    by_place = {str(mapping_of(row).get("index")): mapping_of(row).get("embedding") for row in rows}
    vectors = [by_place.get(str(place)) for place in range(count)]
    if not all(isinstance(vector, list) for vector in vectors):
        raise malformed("the embedding service left out a vector")
    usage = Usage(prompt=count_of(mapping_of(answer.get("usage")).get("prompt_tokens")))
    return ChatReply(
        assistant(json.dumps(vectors)),
        usage,
        cost_usd(usage, price),
        model_id=str(answer.get("model") or model),
    )


def _fitting(text: str) -> str:
    """The text without lone surrogates and not longer than the service takes."""
    return str(speakable(text)).encode()[:MOST_BYTES].decode("utf-8", "ignore")
