"""Import what a config names: modules, and classes to make an object of, a user's own among them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError


def import_named(module: str, setting: str) -> None:
    """Import a module for what it registers.

    Args:
        module: Its dotted name.
        setting: The setting that names it, for the message.

    Raises:
        ConfigError: If there is no such module. Errors inside the module keep their traceback.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as missing:
        if missing.name is None or not f"{module}.".startswith(f"{missing.name}."):
            raise
        raise ConfigError(
            f"{setting} names '{module}', but there is no module '{missing.name}'; install it or put its"
            " folder on PYTHONPATH."
        ) from missing


def import_from(plugin_paths: Iterable[Path]) -> None:
    """Let modules be imported from the user's own folders.

    Args:
        plugin_paths: The folders, as given with --plugin-path.

    Raises:
        ConfigError: If one is not there.
    """
    for path in plugin_paths:
        if not path.is_dir():
            raise ConfigError(f"--plugin-path {path}: no such folder.")
        sys.path.insert(0, str(path.resolve()))


def made_of(kind: str, config: Mapping[str, Any]) -> Any:
    """The object that a config describes: `_target_` called with the config's other keys.

    Args:
        kind: The group of the config, for the message, e.g. `metric`.
        config: The config, in which no option describes an object of its own any more.

    Raises:
        ConfigError: Naming the kind, the target and what was wrong.
    """
    options = {name: value for name, value in config.items() if name != "_target_"}
    try:
        return named_class(kind, config)(**options)
    except TypeError as error:
        raise ConfigError(f"{kind} {config['_target_']} refuses its options: {error}.") from None


def named_class(kind: str, config: Mapping[str, Any]) -> Any:
    """The class (or function) that the `_target_` of a config names.

    Args:
        kind: The group of the config, for the message.
        config: The config.

    Raises:
        ConfigError: If it names none.
    """
    target = config.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"The {kind} YAML has no `_target_: module.Class` line.")
    module_name, _, class_name = target.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Cannot load {kind} {target}: {error}. Is its folder given with --plugin-path?"
        ) from None
