"""Import a module that a config names, so that a fork or a user can register what is theirs."""

from __future__ import annotations

import importlib

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
