"""Import a module that a config names, so that a fork or a user can register what is theirs."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

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
