"""`Composer`: what Hydra makes of some choices and values, with all that can be kept from one to the next.

Hydra reads and joins the YAMLs of a combination in a tenth of a second. A sweep, and a process that composes
again and again, choose among few of them: the files as read, and what choices come to, are kept as long as no
file changes. Values are set on a copy, which takes a hundredth of a second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import shipped_config_dir, shipped_config_dirs
from agentsys.runs.references import refuse_environment

LABELLED = ("model", "defense", "attack")
GROUPS = ("model", "defense", "attack", "benchmark", "executor", "experiment")
_HYDRA = threading.Lock()  # Hydra keeps its state in a global
_APPLICATIONS = (
    *("~hydra/launcher", "~hydra/sweeper", "~hydra/output", "~hydra/env"),
    *("~hydra/help", "~hydra/hydra_help", "~hydra/hydra_logging", "~hydra/job_logging"),
)
"""What Hydra composes for applications that it starts itself: half the time, and no part of our configs."""
_MOST_KEPT = 256
"""Combinations kept before any value is set; a sweep may have thousands, of 0.1 MB each."""
_Stamps = tuple[tuple[str, int, int], ...]
"""Path, size in bytes and time of the last change in ns of every YAML that a composition may read."""


@dataclass(frozen=True)
class Composition:
    """One combination."""

    config: DictConfig
    choices: Mapping[str, str]
    """Group -> name of the YAML that was chosen."""
    chosen: tuple[str, ...]
    """The overrides that chose them."""


@dataclass(frozen=True)
class _Kept:
    """What was read and composed so far from files that are still the same."""

    files: dict[str, ConfigResult] = field(default_factory=dict)
    """Name of a config -> as it was read."""
    composed: dict[tuple[str, ...], Composition] = field(default_factory=dict)
    """Overrides that choose -> what they come to, before any value is set."""
    shipped: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Group and choice -> its YAML, before any override."""


class _KeptFiles(ConfigRepository):
    """Reads configs for Hydra, which parses its own and ours anew for each combination otherwise."""

    def __init__(self, places: ConfigSearchPath, kept: dict[str, ConfigResult]) -> None:
        super().__init__(places)
        self._kept = kept

    def __deepcopy__(self, memo: object) -> _KeptFiles:
        return copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        """Read a config, or give a copy of the one that was read before; Hydra writes into it."""
        if config_path not in self._kept:
            read = super().load_config(config_path)
            if read is None:
                return None
            self._kept[config_path] = read
        return deepcopy(self._kept[config_path])


class Composer:
    """Composes combinations of a run, which share the open Hydra session."""

    def __init__(self, config_dirs: Sequence[Path]) -> None:
        self._folders = [*shipped_config_dirs(), *config_dirs]
        # Hydra has the first of them as its own.
        paths = ",".join(f"'file://{path.resolve()}'" for path in self._folders[1:])
        self._searchpath = [f"hydra.searchpath=[{paths}]"] if paths else []
        self._kept = _kept(_stamps(self._folders))
        loader = GlobalHydra.instance().config_loader()
        assert isinstance(loader, ConfigLoaderImpl)
        loader.repository = _KeptFiles(loader.get_search_path(), self._kept.files)

    def __call__(self, overrides: Sequence[str]) -> Composition:
        """One combination.

        Raises:
            ConfigError: For an unknown key, a value that does not fit, or one read from the environment.
        """
        try:
            parsed = OverridesParser.create().parse_overrides(list(overrides))
            before = self._composed([str(one.input_line) for one in parsed if self._is_choice(one)])
            config = deepcopy(before.config)
            values = [override for override in parsed if not self._is_choice(override)]
            ConfigLoaderImpl._apply_overrides_to_config(values, config)
            refuse_environment(OmegaConf.to_container(config))
            OmegaConf.resolve(config.model)
        except (HydraException, OmegaConfBaseException) as error:
            raise ConfigError(_explain(error, overrides, self)) from None
        return Composition(config, before.choices, before.chosen)

    def shipped(self, composed: Composition) -> dict[str, Mapping[str, Any]]:
        """Model, defense and attack as their YAMLs have them: no value set, neither typed nor by a preset."""
        names = [(group, composed.choices[group]) for group in LABELLED]
        if any(name not in self._kept.shipped for name in names):
            no_preset = all(word.split("=")[0] in GROUPS[:-1] for word in composed.chosen)
            alone = self(composed.chosen if no_preset else ["=".join(name) for name in names])
            values = plain(alone.config)
            self._kept.shipped.update({(group, choice): values[group] for group, choice in names})
        return {group: self._kept.shipped[group, choice] for group, choice in names}

    def _is_choice(self, override: Override) -> bool:
        """Tell a choice from a value, as Hydra does: it names a folder of YAMLs (or is Hydra's own)."""
        key = override.key_or_group
        names_folder = any((folder / key).is_dir() for folder in self._folders)
        return key.startswith("hydra") or (names_folder and not isinstance(override.value(), dict))

    def _composed(self, chosen: Sequence[str]) -> Composition:
        key = tuple(chosen)
        if key not in self._kept.composed:
            words = [*_APPLICATIONS, *self._searchpath, *chosen]
            config = hydra_compose("config", words, return_hydra_config=True)
            choices = {str(k): str(v) for k, v in config.hydra.runtime.choices.items()}
            # Hydra's own node cannot be resolved outside a Hydra job.
            ours = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
            OmegaConf.set_struct(ours, True)
            if len(self._kept.composed) >= _MOST_KEPT:
                del self._kept.composed[next(iter(self._kept.composed))]
            self._kept.composed[key] = Composition(ours, choices, key)
        return self._kept.composed[key]


@contextmanager
def open_composer(config_dirs: Sequence[Path]) -> Iterator[Composer]:
    """A composer, with Hydra for itself."""
    with _HYDRA:
        if GlobalHydra.instance().is_initialized():  # a notebook that used Hydra itself
            GlobalHydra.instance().clear()
        with initialize_config_dir(str(shipped_config_dir().resolve()), version_base="1.3"):
            yield Composer(config_dirs)


@lru_cache(maxsize=8)
def _kept(stamps: _Stamps) -> _Kept:
    """What is kept of these files; nothing, once one of them has changed."""
    return _Kept()


def _stamps(folders: Iterable[Path]) -> _Stamps:
    files = [path for folder in folders for path in sorted(folder.resolve().rglob("*.yaml"))]
    return tuple((str(path), stat.st_size, stat.st_mtime_ns) for path in files for stat in [path.stat()])


def plain(config: DictConfig) -> dict[str, Any]:
    """A config as plain data, everything resolved."""
    values = OmegaConf.to_container(config, resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def leaves(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values in nested options, by their dotted names."""
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict):
            found |= leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _explain(error: Exception, overrides: Sequence[str], compose: Composer) -> str:
    """One line about a composition error; for an unknown key, the nearest known ones."""
    text = first_line(error)
    for override in overrides:
        key = override.split("=")[0].lstrip("+~")
        if f"'{key}'" in text and "Could not override" in text:
            known = leaves(plain(compose([o for o in overrides if o != override]).config))
            names = [*GROUPS, *(name for name in known if "._" not in name)]
            return unknown_name("setting", key, names).split(" Known:")[0] + " See `agentsys show config`."
    return text


def first_line(error: Exception) -> str:
    """The first line of an error of Hydra's, as a sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".") + "."
