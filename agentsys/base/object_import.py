"""Import the modules and classes that a config names, a user's own among them."""

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
"""What a registered name begins with in an identity; no import path of a user's has a colon."""

_log = logging.getLogger(__name__)


def import_module_of_setting(module: str, setting: str) -> None:
    """Import a module for what it registers.

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
    """Let modules be imported from the user's own folders.

    Raises:
        ConfigError: If one is not there.
    """
    for path in plugin_paths:
        if not path.is_dir():
            raise ConfigError(f"--plugin-path {path}: no such folder.")
        sys.path.insert(0, str(path.resolve()))


def build_object(kind: str, config: Mapping[str, Any]) -> Any:
    """The object that a config describes: `_target_` called with the config's other keys.

    Raises:
        ConfigError: Naming the kind, the target and what was wrong.
    """
    options = {name: value for name, value in config.items() if name != "_target_"}
    try:
        return load_target(kind, config)(**options)
    except TypeError as error:
        raise ConfigError(f"{kind} {config['_target_']} refuses its options: {error}.") from None


def load_target(kind: str, config: Mapping[str, Any]) -> Any:
    """The class (or function) that the `_target_` of a config names.

    Raises:
        ConfigError: If it names none.
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
    """What a class of ours is called: its name in identities, and its import paths."""

    name: str
    """E.g. `agentsys:defense.camel`."""
    today: str
    in_0_1: str
    """The one that identities of version 0.1 held."""
    first: str
    """The oldest one, by which kept replies know it."""


@lru_cache(maxsize=1)
def load_registered_classes() -> Mapping[str, RegisteredClass]:
    """Import path, today's or an earlier one -> the class of ours."""
    table = tomllib.loads(REGISTERED_NAMES.read_text(encoding="utf-8"))
    found = {}
    for name, (today, *earlier) in table["names"].items():
        in_0_1 = earlier[0] if earlier else today
        first = table["older"].get(name, in_0_1)
        known = RegisteredClass(f"{_REGISTERED}{name}", today, in_0_1, first)
        found.update(dict.fromkeys((first, *earlier, today), known))
    return found


def find_registered_class(path: object) -> RegisteredClass:
    """The class of ours that lies, or lay, under an import path; a user's has its path for every name."""
    own = str(path)
    return load_registered_classes().get(own) or RegisteredClass(own, own, own, own)


def find_todays_path(path: str) -> str:
    """The import path of a class today; logs a warning where one of ours is named by an earlier path."""
    today = find_registered_class(path).today
    if today != path:
        _warn_moved(path, today)
    return today


@lru_cache(maxsize=256)  # once in a process
def _warn_moved(path: str, today: str) -> None:
    _log.warning("_target_: %s has moved; this release still finds it; write _target_: %s", path, today)


def replace_texts_of_option(
    config: Any, option: str, change: Callable[[str], str], key: object = None
) -> Any:
    """A config in which every text that an option of this name has, at any depth, is another one."""
    if isinstance(config, Mapping):
        return {name: replace_texts_of_option(value, option, change, name) for name, value in config.items()}
    if isinstance(config, list):
        return [replace_texts_of_option(value, option, change) for value in config]
    return change(config) if key == option and isinstance(config, str) else config


def replace_by_todays_paths(config: Any) -> Any:
    """A config, maybe of an earlier release, in which classes of ours are called by today's import paths."""
    return replace_texts_of_option(config, "_target_", lambda path: find_registered_class(path).today)


def replace_by_registered_names(config: Any) -> Any:
    """A config in which classes of ours are called by their registered names."""
    return replace_texts_of_option(config, "_target_", lambda path: find_registered_class(path).name)
