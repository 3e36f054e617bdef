"""A recipe without its machine's paths, and back: `bundle:files/...` stands for what is in the bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentsys.bundles.manifest import CODE, FILES, MEMBER_PREFIX
from agentsys.errors import ConfigError
from agentsys.records.case import safe_name
from agentsys.runs.instantiate import find_kept_folders
from agentsys.runs.provenance.recipe import Recipe
from agentsys.runs.settings import Settings, validate_settings
from agentsys.runs.source_code import content_digest

CONFIG_GROUPS = ("model", "defense", "attack", "benchmark")
_FOLDER_OPTIONS = {"attack.file", "attack.artefact", "attack.base.file", "attack.base.artefact", "benchmark.data"}
"""Options that may name a folder, which is only read."""
_AGAIN_HINT = "Put back what it was then, or run the cases anew (agentsys run ... --again)."


@dataclass
class PortableCell:
    """A cell's settings as a bundle has them, and where the members lie that they name."""

    settings: dict[str, Any]
    members: dict[str, Path] = field(default_factory=dict)
    """Member -> file."""
    kept: set[str] = field(default_factory=set)
    """Folders of the log folder's own in which the defense keeps files."""


def make_portable(recipe: Recipe) -> PortableCell:
    """Take the machine's paths out of a recipe.

    Raises:
        ConfigError: If a file was changed since the run, or something is named that no bundle can hold.
    """
    cell = PortableCell(deepcopy(recipe.settings))
    settings, folder = cell.settings, Path(recipe.folder)
    settings["cache"] = {}
    _refuse_folders(settings)
    for option, digest in (settings.get("files") or {}).items():
        _take_file(cell, option, folder, digest)
    if settings["benchmark"].get("data") not in (None, "sample", "fetched"):
        _take_file(cell, "benchmark.data", folder, None)
    for node in _iterate_nodes(settings["defense"]):
        for option, own in find_kept_folders(node).items():
            cell.kept.add(own)
            if node.get(option) is not None:
                raise ConfigError(
                    f"defense.{option} is a folder of its own, whose files a bundle does not find: leave it"
                    " out (null) and run again into another logdir."
                )
    for name, path in recipe.code.items():
        _take_code(cell, name, Path(path))
    for option, value in _iterate_texts({group: settings[group] for group in CONFIG_GROUPS}):
        if Path(value).is_absolute() and _path_exists(Path(value)):
            raise ConfigError(
                f"{option} is {value}, a place of this machine that no bundle holds. Name it in a way that"
                " holds elsewhere, and run again into another logdir."
            )
    return cell


def insert_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Settings of a bundle with the paths of what was unpacked to a folder.

    Raises:
        ConfigError: If they name what is not in the bundle.
    """

    def path_of(value: str) -> str:
        if not value.startswith(MEMBER_PREFIX):
            return value
        path = (folder / value.removeprefix(MEMBER_PREFIX)).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ConfigError(f"The bundle is refused: a setting names {value[:100]!a}.")
        return str(path)

    found: dict[str, Any] = _map_texts(dict(settings), path_of)
    for option, value in _iterate_texts({group: found.get(group, {}) for group in CONFIG_GROUPS}):
        path = Path(value)
        if path.is_absolute() and path.is_relative_to(folder.resolve()):
            # Of weights or a checkout a folder could hold code.
            if path.is_dir() and option not in _FOLDER_OPTIONS:
                raise ConfigError(f"The bundle is refused: {option} names a folder in it.")
        elif (path.is_absolute() or ".." in path.parts or value.startswith("~")) and _path_exists(path):
            raise ConfigError(f"The bundle is refused: {option} names {value} of this machine.")
    return found


def check_bundled_settings(values: Mapping[str, Any], logdir: Path, **more: Any) -> Settings:
    """Settings of a bundle, to be run into a folder.

    Raises:
        ConfigError: If they are none.
    """
    return validate_settings({**values, "executor": {"workers": 1}, "logdir": logdir, **more})


def _refuse_folders(settings: Mapping[str, Any]) -> None:
    model, benchmark = settings["model"], settings["benchmark"]
    if model.get("traces") is not None:
        raise ConfigError(
            f"Model '{model.get('name')}' replays recorded runs ({model['traces']}), which are no part of a "
            "bundle: publish those runs, and the command."
        )
    if benchmark.get("source") not in (None, "fetched"):
        raise ConfigError(
            f"benchmark.source={benchmark['source']} is a checkout with code of its own, which no bundle "
            "holds: run with benchmark.source=fetched (`agentsys fetch agentdyn`)."
        )
    if "***" in str(model.get("base_url")):
        raise ConfigError(
            "model.base_url holds credentials, and replies are found by it: name the key with "
            "model.api_key_env=VARIABLE instead, and run again into another logdir."
        )


def _take_file(cell: PortableCell, option: str, folder: Path, digest: str | None) -> None:
    """Put the file or folder that an option names among the members, and the member in its place."""
    *above, last = option.split(".")
    node = cell.settings
    for name in above:
        node = node.get(name) or {}
    value = node.get(last)
    if not isinstance(value, str):
        raise ConfigError(f"{option} names a file in a way that no bundle can follow: {value!r}.")
    path = (folder / Path(value).expanduser()).absolute()
    try:
        now = content_digest(path)
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror}. {_AGAIN_HINT}") from None
    if digest is not None and now != digest:
        raise ConfigError(f"{option} {path} was changed since the run. {_AGAIN_HINT}")
    top = f"{FILES}/{safe_name(option)}-{now[:8]}/{safe_name(path.name)}"
    node[last] = f"{MEMBER_PREFIX}{top}"
    if path.is_file():
        cell.members[top] = path
        return
    for inner in sorted(file for file in path.rglob("*") if file.is_file()):
        cell.members[f"{top}/{inner.relative_to(path).as_posix()}"] = inner


def _take_code(cell: PortableCell, name: str, path: Path) -> None:
    try:
        now = content_digest(path)
    except OSError as error:
        raise ConfigError(f"Source file {path} cannot be read: {error.strerror}. {_AGAIN_HINT}") from None
    if now != cell.settings["code"][name]:
        raise ConfigError(f"Source file {path} was changed since the run. {_AGAIN_HINT}")
    if Path(name).is_absolute():
        raise ConfigError(
            f"Source file {path} lies outside the folder that its module is imported from, where no bundle "
            "can put it: move it there, and run the cases anew (agentsys run ... --again)."
        )
    cell.members[f"{CODE}/{name}"] = path


def _iterate_nodes(value: Any) -> Iterator[dict[str, Any]]:
    """A config and every config inside it."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield value
        for inner in value.values():
            yield from _iterate_nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iterate_nodes(inner)


def _iterate_texts(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Option -> its text, for every text in plain data."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _iterate_texts(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _iterate_texts(inner, prefix)
    elif isinstance(value, str):
        yield prefix, value


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _map_texts(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [_map_texts(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value


def _path_exists(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False
