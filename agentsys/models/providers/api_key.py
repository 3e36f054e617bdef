"""Reading a provider's key: once, when the model is built, and never shown again."""

from __future__ import annotations

import os

from agentsys.errors import Unavailable


def read_variable(model: str, variable: str) -> str:
    """The value of an environment variable that a model cannot do without.

    Args:
        model: The model's name, for the message.
        variable: The variable's name.

    Raises:
        Unavailable: If it is not set or blank.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise Unavailable(
            f"Model '{model}' needs the variable {variable}: export {variable}=... and run again.",
            needs=variable,
        )
    return value


def read_key(model: str, variable: str | None) -> str | None:
    """The key a model's YAML names with `api_key_env`; None where it names none (a local server).

    Raises:
        Unavailable: If the variable is named but not set.
    """
    return None if variable is None else read_variable(model, variable)
