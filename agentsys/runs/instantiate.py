"""`instantiate`: the object that a config node describes."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from agentsys.errors import ConfigError


def instantiate(group: str, config: Mapping[str, Any]) -> Any:
    """The object a config node describes: `_target_` called with the node's other keys.

    An option that is such a node itself (an attack's `base`) is built first.

    Raises:
        ConfigError: Naming the group, the target and what was wrong.
    """
    options = {key: _built(group, value) for key, value in config.items()}
    target = options.pop("_target_", None)
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"The {group} YAML has no `_target_: module.Class` line.")
    module_name, _, class_name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Cannot load {group} {target}: {error}. Is its folder given with --plugin-path?"
        ) from None
    try:
        return found(**options)
    except TypeError as error:
        raise ConfigError(f"{group} {target} refuses its options: {error}.") from None


def _built(group: str, option: Any) -> Any:
    """An option, built if it describes an object."""
    return instantiate(group, option) if isinstance(option, dict) and "_target_" in option else option
