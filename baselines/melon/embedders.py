"""`Embedder`: vectors of call texts, offline or through OpenAI, and the bank of masked calls.

`CharNgrams` counts hashed character n-grams; `OpenAIEmbeddings` asks a service, booked in the case's usage.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from agentsys.base.json_values import to_json_bytes
from agentsys.errors import ConfigError, Unavailable, unknown_name
from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of, user
from agentsys.models.pricing import Price, cost_usd
from agentsys.models.providers.openai import OpenAIModel
from agentsys.models.providers.reply_reader import Reading, read_body
from agentsys.models.providers.wire_parts import (
    as_mapping,
    clean_json,
    make_malformed_reply_error,
    read_token_count,
)
from agentsys.models.wrappers.accounting import MeteredModel, RecordingModel, RetryingModel, RetryPolicy
from agentsys.models.wrappers.rate_limit import RateLimitedModel, RateLimiter

_SIZES = (2, 3, 4)
"""Characters per n-gram."""
_DIMENSIONS = 4096
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio: spreads neighbouring code points over all 64 bits."""


class CharNgrams:
    """Counts of hashed character n-grams, as vectors of 4096 numbers, the same on every machine.

    Two calls are alike as far as their spelling is: the same call has 1.0, one more argument costs a
    little, another tool nearly everything. Words of one meaning are strangers to it.
    """

    name = "char_ngrams"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text; it is never all zeros for a text of two characters or more."""
        return [_count_ngrams(text).tolist() for text in texts]


def _count_ngrams(text: str) -> NDArray[np.float64]:
    codes = np.frombuffer(text.lower().encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    counts = np.zeros(_DIMENSIONS)
    for size in _SIZES:
        runs = max(0, len(codes) - size + 1)
        hashes = np.full(runs, size, dtype=np.uint64)
        for offset in range(size):
            hashes = (hashes ^ codes[offset : offset + runs]) * _HASH_FACTOR
            hashes ^= hashes >> np.uint64(29)
        # As indices: numpy before 2.2.6 does not count unsigned 64-bit numbers.
        slots = (hashes % np.uint64(_DIMENSIONS)).astype(np.intp)
        counts += np.bincount(slots, minlength=_DIMENSIONS)
    return counts


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
        """One vector per text, in order."""
        # Without lone surrogates, and not longer than the service takes.
        fitted = [str(clean_json(text)).encode()[:MOST_BYTES].decode("utf-8", "ignore") for text in texts]
        vectors: list[list[float]] = []
        for start in range(0, len(fitted), MOST_TEXTS):
            batch = [user(text) for text in fitted[start : start + MOST_TEXTS]]
            vectors += json.loads(
                text_of(self._model.complete(ChatRequest(batch, role=EMBEDDING_ROLE)).message)
            )
        return vectors


@dataclass(repr=False, eq=False, kw_only=True)
class EmbeddingEndpoint(OpenAIModel):
    """One HTTP request per question, in the shape of a chat model, so that our wrappers fit around it.

    The request's messages are the texts; the reply's text is the vectors, as JSON.
    """

    _path: ClassVar[str] = "/embeddings"

    def _build_body(self, request: ChatRequest) -> bytes:
        texts = [text_of(message) for message in request.messages]
        return to_json_bytes({"model": self.model_id, "input": texts, "encoding_format": "float"})

    def _read_reply(self, answer: bytes, reading: Reading) -> ChatReply:
        body = read_body(answer, "data", reading.key)
        return _read_vectors(body, len(reading.request.messages), self.model_id, reading.price)


def _read_vectors(answer: Mapping[str, Any], count: int, model: str, price: Price | None) -> ChatReply:
    rows = answer.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        raise make_malformed_reply_error(f"the embedding service did not answer with {count} vectors")
    by_place = {str(as_mapping(row).get("index")): as_mapping(row).get("embedding") for row in rows}
    vectors = [by_place.get(str(index)) for index in range(count)]
    if not all(isinstance(vector, list) for vector in vectors):
        raise make_malformed_reply_error("the embedding service left out a vector")
    usage = Usage(prompt=read_token_count(as_mapping(answer.get("usage")).get("prompt_tokens")))
    model_id = str(answer.get("model") or model)
    return ChatReply(assistant(json.dumps(vectors)), usage, cost_usd(usage, price), model_id=model_id)


EMBEDDERS = ("openai", "char_ngrams")
"""What the option `embedder` may say, besides `package.module.Class` of one's own."""


@runtime_checkable
class Embedder(Protocol):
    """Texts in, one vector each out. Used from many threads at once."""

    name: str
    """Names it in records, and in the option `threshold`."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Vectors of one length, in the order of the texts; equal texts give equal vectors.

        Raises:
            ModelError: If it cannot; nothing is then executed.
        """


def build_embedder(name: str, openai: Mapping[str, Any]) -> Embedder:
    """The embedder of a config: one of `EMBEDDERS`, or the dotted path of a class that takes no arguments."""
    if name == "char_ngrams":
        return CharNgrams()
    if name == "openai":
        try:
            return OpenAIEmbeddings(**openai)
        except TypeError as error:
            raise ConfigError(f"melon: section 'openai' is wrong: {error}.") from None
        except Unavailable as error:
            text = f"{error} Without a key: defense.melon.embedder=char_ngrams."
            raise Unavailable(text, needs=error.needs) from None
    return _load_own_embedder(name)


def _load_own_embedder(path: str) -> Embedder:
    module, _, class_name = path.rpartition(".")
    if not module:
        raise ConfigError(f"melon: {unknown_name('embedder', path, EMBEDDERS)} Or package.module.Class.")
    try:
        embedder = getattr(importlib.import_module(module), class_name)()
    except (ImportError, AttributeError, TypeError) as error:
        mend = "Is its folder given with --plugin-path?"
        raise ConfigError(f"melon: embedder {path} cannot be built: {error}. {mend}") from None
    if not isinstance(embedder, Embedder):
        raise ConfigError(f"melon: embedder {path} is none: it needs a `name` and a method `embed(texts)`.")
    return embedder


CallVectors = NDArray[np.float64]
"""Shape `(texts, dimensions)`; every row has length 1."""


@dataclass(frozen=True)
class CallMatch:
    """The proposed call that is most like a banked one."""

    proposed: str
    masked: str
    similarity: float
    """Cosine of their vectors."""


@dataclass
class MaskedCallBank:
    """Texts of masked calls in the order they first came, and every vector this task has asked for."""

    masked: list[str] = field(default_factory=list)
    vectors: dict[str, CallVectors] = field(default_factory=dict)
    """Text -> its unit vector, of masked and proposed calls alike: no text is embedded twice."""

    def find_nearest(self, proposed: Sequence[str], embedder: Embedder) -> CallMatch | None:
        """The likest pair of a proposed and a banked call; None where one side is empty.

        Raises:
            ModelError: If the embedder failed or gave no usable vectors.
        """
        if not proposed or not self.masked:
            return None
        if new := [text for text in dict.fromkeys([*self.masked, *proposed]) if text not in self.vectors]:
            self.vectors.update(zip(new, normalize_rows(embedder.embed(new), len(new)), strict=True))
        similarity = self._stack_vectors(proposed) @ self._stack_vectors(self.masked).T
        row, column = np.unravel_index(int(similarity.argmax()), similarity.shape)
        return CallMatch(proposed[int(row)], self.masked[int(column)], float(similarity[row, column]))

    def _stack_vectors(self, texts: Sequence[str]) -> CallVectors:
        rows = [self.vectors[text] for text in texts]
        if len({len(vector) for vector in self.vectors.values()}) > 1:
            raise make_malformed_reply_error(
                "the embedder changed the length of its vectors between two requests"
            )
        return np.stack(rows)


def normalize_rows(rows: Sequence[Sequence[float]], count: int) -> CallVectors:
    """The rows as unit vectors, `(count, dimensions)`, checked: a bad one must not let a call through.

    Raises:
        ModelError: MALFORMED_REPLY, if a cosine would be undefined, and every comparison with it false.
    """
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        text = "the embedder returned something that is not a list of equally long vectors"
        raise make_malformed_reply_error(text) from None
    if matrix.ndim != 2 or matrix.shape[0] != count:
        raise make_malformed_reply_error(
            f"the embedder returned an array of shape {matrix.shape} for {count} texts"
        )
    norms = np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    if not np.isfinite(norms).all() or not (norms > 0).all():
        raise make_malformed_reply_error("the embedder returned a vector without a direction")
    unit: CallVectors = matrix / norms
    return unit
