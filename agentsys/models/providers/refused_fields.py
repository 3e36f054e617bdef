"""Which field of a model's YAML a provider refuses, told from its error, and what to set instead."""

from __future__ import annotations

import re

from agentsys.errors import ConfigError
from agentsys.models.errors import ErrorKind, ModelError

_REFUSES = re.compile(
    r"deprecated for this model|unsupported (parameter|value)|(is|are) not supported|does not support"
    r"|may only be set to|only the default",
    re.IGNORECASE,
)
_MENDS = (
    # OpenAI's newer models take tools together with reasoning under the other API alone.
    (re.compile(r"/v1/responses", re.IGNORECASE), "api", "responses"),
    (re.compile(r"use .?max_completion_tokens", re.IGNORECASE), "max_tokens_field", "max_completion_tokens"),
    (re.compile(r"thinking\W{1,3}type\W{1,3}enabled", re.IGNORECASE), "thinking", "adaptive"),
    (
        re.compile(r"\badaptive\b.{0,20}thinking|thinking.{0,20}\badaptive\b", re.IGNORECASE),
        "thinking",
        "null",
    ),
    (re.compile(r"\btemperature\b", re.IGNORECASE), "temperature", "null"),
    (re.compile(r"\breasoning[._]effort\b", re.IGNORECASE), "reasoning_effort", "null"),
    (re.compile(r"\b(output_config\.)?effort\b", re.IGNORECASE), "effort", "null"),
)
_ALSO = {"adaptive": " model.thinking_budget=null"}


def refused_field(name: str, error: ModelError) -> ConfigError | None:
    """The error for a setting that the model does not take, in place of the provider's; None: it is another.

    Every case would meet it, and only the YAML can mend it.

    Args:
        name: The model's name.
        error: The provider's refusal.
    """
    text = str(error)
    if error.kind is not ErrorKind.BAD_REQUEST or not _REFUSES.search(text):
        return None
    for pattern, field, value in _MENDS:
        if pattern.search(text):
            mend = f"model.{field}={value}{_ALSO.get(value, '')}"
            return ConfigError(f"Model '{name}' does not take `{field}` as it is ({text}); set {mend}")
    return None
