"""Imports the modules and classes that a config names, ours and the user's."""

from __future__ import annotations

import importlib
import logging
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import OUR_PACKAGES, explain_absent_guests

REGISTERED_NAMES = Path(__file__).parents[1] / "registered_names.toml"
_REGISTERED = "agentsys:"
"""Prefix of a registered name in an identity; no import path contains a colon."""

_log = logging.getLogger(__name__)


def import_module_of_setting(module: str, setting: str) -> None:
    """Import a module, so that it registers its classes.

    Raises:
        ConfigError: If there is no such module, or its code fails.
    """
    _import_module(module, f"{setting} names '{module}'", "install it or put its folder on PYTHONPATH.")


def _import_module(module: str, what: str, where_to_put_it: str) -> ModuleType:
    """Import a module that a config names.

    Raises:
        ConfigError: If there is no such module, or the user's code in it fails. Our own code keeps its traceback.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        absent = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{module}.".startswith(f"{absent}."):
            hint = explain_absent_guests()
            raise ConfigError(
                f"{what}, but there is no module '{absent}'; {where_to_put_it}{hint}"
            ) from error
        if not isinstance(error, ImportError) and module.partition(".")[0] in OUR_PACKAGES:
            raise
        raise ConfigError(f"{what}, but its code fails: {locate_error(error)}") from error


def locate_error(error: BaseException) -> str:
    """File, line and message of an error in a module: the last line of it that is in no library."""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}, line {error.lineno}"
    else:
        frames = traceback.extract_tb(error.__traceback__)
        libraries = (sysconfig.get_path("stdlib"), "<frozen", str(Path(__file__).parents[1]))
        own = [
            f for f in frames if not f.filename.startswith(libraries) and "site-packages" not in f.filename
        ]
        where = f"{own[-1].filename}, line {own[-1].lineno}" if own else "in a library"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{where}: {type(error).__name__}: {message}"


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
    today = find_registered_class(target).today
    if today != target:
        _warn_moved(target, today)
    module_name, _, class_name = today.rpartition(".")
    module = _import_module(
        module_name, f"The {kind} YAML names {target}", "is its folder given with --plugin-path?"
    )
    if not hasattr(module, class_name):
        own = [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module_name and not name.startswith("_")
        ]
        unknown = unknown_name(f"class in {module.__file__}", class_name, own)
        raise ConfigError(f"The {kind} YAML names {target}. {unknown}")
    return getattr(module, class_name)


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
