"""Imports the modules and classes that a config names, ours and the user's."""

from __future__ import annotations

import importlib
import logging
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.errors import ConfigError

REGISTERED_NAMES = Path(__file__).parents[1] / "registered_names.toml"
_REGISTERED = "agentsys:"
"""Prefix of a registered name in an identity; no import path contains a colon."""

_log = logging.getLogger(__name__)


def import_module_of_setting(module: str, setting: str) -> None:
    """Import a module, so that it registers its classes.

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


def add_plugin_paths(plugin_paths: Iterable[Path]) -> None:
    """Add the user's own folders to the import path.

    Raises:
        ConfigError: If a folder does not exist.
    """
    for path in plugin_paths:
        if not path.is_dir():
            raise ConfigError(f"--plugin-path {path}: no such folder.")
        sys.path.insert(0, str(path.resolve()))


def build_object(kind: str, config: Mapping[str, Any]) -> Any:
    """Build the object of a config: call `_target_` with the config's other keys.

    Raises:
        ConfigError: If the target cannot be imported or refuses its options.
    """
    options = {name: value for name, value in config.items() if name != "_target_"}
    try:
        return load_target(kind, config)(**options)
    except TypeError as error:
        raise ConfigError(f"{kind} {config['_target_']} refuses its options: {error}.") from None


def load_target(kind: str, config: Mapping[str, Any]) -> Any:
    """Import the class (or function) that the `_target_` of a config names.

    Raises:
        ConfigError: If it is missing or cannot be imported.
    """
    target = config.get("_target_")
    if not isinstance(target, str) or "." not in target:
        raise ConfigError(f"The {kind} YAML has no `_target_: module.Class` line.")
    module_name, _, class_name = find_todays_path(target).rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"Cannot load {kind} {target}: {error}. Is its folder given with --plugin-path?"
        ) from None


class RegisteredClass(NamedTuple):
    """The names of one of our classes: its registered name, and its import paths."""

    name: str
    """E.g. `agentsys:defense.camel`."""
    today: str
    in_0_1: str
    """Import path in identities of version 0.1."""
    first: str
    """The oldest import path, which cache keys of replies contain."""


@lru_cache(maxsize=1)
def load_registered_classes() -> Mapping[str, RegisteredClass]:
    """Import path, today's or an earlier one -> our class."""
    table = tomllib.loads(REGISTERED_NAMES.read_text(encoding="utf-8"))
    classes = {}
    for name, (today, *earlier) in table["names"].items():
        in_0_1 = earlier[0] if earlier else today
        first = table["older"].get(name, in_0_1)
        known = RegisteredClass(f"{_REGISTERED}{name}", today, in_0_1, first)
        classes.update(dict.fromkeys((first, *earlier, today), known))
    return classes


def find_registered_class(path: object) -> RegisteredClass:
    """Find our class by a present or earlier import path; for a user's class all names are its path."""
    own = str(path)
    return load_registered_classes().get(own) or RegisteredClass(own, own, own, own)


def find_todays_path(path: str) -> str:
    """Return today's import path of a class; warn if an earlier path of ours was given."""
    today = find_registered_class(path).today
    if today != path:
        _warn_moved(path, today)
    return today


@lru_cache(maxsize=256)  # Warns once per process.
def _warn_moved(path: str, today: str) -> None:
    _log.warning("_target_: %s has moved; this release still finds it; write _target_: %s", path, today)


def replace_texts_of_option(
    config: Any, option: str, change: Callable[[str], str], key: object = None
) -> Any:
    """Apply `change` to every text value of an option of this name, at any depth of a config."""
    if isinstance(config, Mapping):
        return {name: replace_texts_of_option(value, option, change, name) for name, value in config.items()}
    if isinstance(config, list):
        return [replace_texts_of_option(value, option, change) for value in config]
    return change(config) if key == option and isinstance(config, str) else config


def replace_by_todays_paths(config: Any) -> Any:
    """Replace earlier import paths of our classes in a config by today's."""
    return replace_texts_of_option(config, "_target_", lambda path: find_registered_class(path).today)


def replace_by_registered_names(config: Any) -> Any:
    """Replace import paths of our classes in a config by their registered names."""
    return replace_texts_of_option(config, "_target_", lambda path: find_registered_class(path).name)
