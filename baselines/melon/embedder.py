"""`Embedder`: what turns texts of calls into vectors, and how a config's name becomes one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentsys.errors import ConfigError, Unavailable, unknown_name
from baselines.melon.char_ngrams import CharNgrams
from baselines.melon.openai_embeddings import OpenAIEmbeddings

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
        ...


def build_embedder(name: str, openai: Mapping[str, Any]) -> Embedder:
    """The embedder of a config: one of `EMBEDDERS`, or the dotted path of a class that takes no arguments.

    Raises:
        ConfigError: If there is none of this name, its options are wrong, or its key is missing.
    """
    if name == "char_ngrams":
        return CharNgrams()
    if name == "openai":
        try:
            return OpenAIEmbeddings(**openai)
        except TypeError as error:
            raise ConfigError(f"melon: section 'openai' is wrong: {error}.") from None
        except Unavailable as error:
            text = f"{error} Without a key: defense.embedder=char_ngrams."
            raise Unavailable(text, needs=error.needs) from None
    return _load_own_embedder(name)


def _load_own_embedder(path: str) -> Embedder:
    module, _, class_name = path.rpartition(".")
    if not module:
        raise ConfigError(f"melon: {unknown_name('embedder', path, EMBEDDERS)} Or package.module.Class.")
    try:
        found = getattr(importlib.import_module(module), class_name)()
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"melon: embedder {path} cannot be built: {error}. Is its folder given with --plugin-path?"
        ) from None
    if not isinstance(found, Embedder):
        raise ConfigError(f"melon: embedder {path} is none: it needs a `name` and a method `embed(texts)`.")
    return found
