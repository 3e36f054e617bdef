"""What a config may not pull in: environment variables, whose values would stand in names and records."""

from __future__ import annotations

import re
from typing import Any

from agentsys.errors import ConfigError

_ENVIRONMENT = re.compile(r"\$\{\s*(oc\.)?env\s*:\s*([^}]*)")
_FREE = {"logdir"}
"""Settings that stand in no record and no name; a cluster's scratch folder is best taken from a variable."""


def refuse_environment(value: Any, where: str = "") -> None:
    """See that no setting reads an environment variable but through an option that names one.

    Args:
        value: A config as written, nothing resolved: dicts, lists and plain values.
        where: Path of the value in the config.

    Raises:
        ConfigError: Naming the setting and the variable.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if where or key not in _FREE:
                refuse_environment(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            refuse_environment(inner, where)
    elif isinstance(value, str) and (found := _ENVIRONMENT.search(value)):
        variable = found[2].split(",")[0].strip()
        raise ConfigError(
            f"Setting '{where}' reads the environment variable {variable}, whose value would stand in names"
            " and records. Write the value itself; a key is named, as in model.api_key_env=VARIABLE."
        )
