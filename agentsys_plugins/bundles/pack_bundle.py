"""`pack_bundle`: writes a bundle of a log folder.

`LeakSearch` looks for secrets that must not be published: keys, which are refused, and paths of this machine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from agentsys.base.config_catalog import list_config_names, load_config
from agentsys.base.json_values import to_json_bytes
from agentsys.base.packed_json import read_json_bytes, unpack_json
from agentsys.errors import ConfigError
from agentsys.models.build_model import find_model_class, parse_card
from agentsys.models.wrappers.reply_cache import CacheMode
from agentsys.records.case import ATTEMPTS, UnreadableRecord
from agentsys.records.old_shards import unpack_shards
from agentsys.records.runs_source import RECORDS
from agentsys.records.schema import OWN_KEY
from agentsys.records.stored_plan import find_unfinished
from agentsys.runs.cell import resolve_model_config
from agentsys.runs.store import INFERRED_FOLDER, OWN_FOLDER, Recipe, Store, load_code_states, load_recipe
from agentsys.runs.store import REPLIES_FOLDER as OWN_REPLIES
from agentsys_plugins.bundles.bundle_archive import (
    KEPT,
    MANIFEST_NAME,
    REPLIES,
    BundledCell,
    BundleWriter,
    Manifest,
    list_package_versions,
)
from agentsys_plugins.bundles.rerun_bundle import PortableCell, check_bundled_settings, make_portable

_MIN_KEY_CHARS = 12
"""Fewest characters of a key; a shorter one is a placeholder for servers without keys."""


class LeakSearch:
    """Searches all packed content for keys, which are refused, and for paths of this machine."""

    def __init__(self, logdir: Path, recipes: Iterable[Recipe]) -> None:
        several = list(recipes)
        places = {str(Path.home()), str(logdir.absolute()), *(recipe.folder for recipe in several)}
        self._places = sorted((folder for folder in places if folder.count("/") > 1), key=len, reverse=True)
        self._found: dict[str, list[str]] = {}
        used = [m for r in several for m in (r.settings["model"], *r.settings["others"].values())]
        shipped = [load_config("model", name) for name in list_config_names("model")]
        named = {str(model.get("api_key_env")) for model in (*used, *shipped)}
        values = {name: os.environ.get(name, "") for name in named}
        self._keys = {name: value.encode() for name, value in values.items() if len(value) >= _MIN_KEY_CHARS}

    def read_content(self, name: str, path: Path) -> bytes:
        """Read a member's content; paths in a record's traceback are shortened."""
        content = path.read_bytes()
        if name.startswith(f"{RECORDS}/"):
            content = self._strip_places(unpack_json(content))
        self.check_member(name, content)
        return content

    def check_member(self, name: str, content: bytes) -> None:
        """Search a member before it is packed.

        Raises:
            ConfigError: If it holds a key.
        """
        for variable, key in self._keys.items():
            if key in content:
                raise ConfigError(
                    f"{name} holds the key in {variable}: nothing is packed. Take the key out of the "
                    "settings or texts that put it there, and run again into another logdir."
                )
        for folder in self._places:
            if folder.encode() in content:
                self._found.setdefault(folder, []).append(name)

    def list_notes(self) -> Iterator[str]:
        """Yield one line for each path of this machine that was found."""
        for folder, names in self._found.items():
            several = "one of its files" if len(names) == 1 else f"{len(names)} of its files"
            yield f"{folder} stands in {several} ({names[0]}): look before you publish it"

    def _strip_places(self, content: bytes) -> bytes:
        stored = orjson.loads(content)
        block = stored[OWN_KEY]
        if not block.get("traceback"):
            return content
        block["traceback"] = self._shorten_traceback(block["traceback"])
        return to_json_bytes(stored | {"error": self._shorten_traceback(stored.get("error"))}, indent=True)

    def _shorten_traceback(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        code_places = sorted((path for path in sys.path if path.count("/") > 1), key=len, reverse=True)
        for folder in (*code_places, *self._places):
            text = text.replace(f"{folder}/", "")
        return text


_REPLY_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.json")
"""File name of a cached reply in its folder."""
_RERUN_HINT = "Run the same command again: what is finished is not run twice, and it is kept then."


@dataclass(frozen=True)
class PackedBundle:
    """A bundle that was written."""

    file: Path
    records: int
    attempts: int
    """Attempts of searches, which lie beside the records."""
    replies: int
    unfinished: int
    """Planned cases without a record."""
    notes: tuple[str, ...]
    """Things to look at before it is published."""


def pack_bundle(logdir: Path, file: Path) -> PackedBundle:
    """Write a bundle of a log folder.

    Raises:
        ConfigError: If there is nothing to pack, something cannot be packed, or the file cannot be written.
    """
    stored = _list_stored(logdir)
    recipes = {key: _load_recipe(logdir, key, stored) for key in sorted(set(stored.values()))}
    cells = {key: make_portable(recipe) for key, recipe in recipes.items()}
    members = {f"{RECORDS}/{path.relative_to(logdir).as_posix()}": path for path in stored}
    for cell in cells.values():
        members |= cell.members | _collect_kept(logdir, cell)
    members |= _collect_replies(logdir, recipes.values())
    missing = sum(count for run in find_unfinished([logdir]) for count, _ in run.missing.values())
    leaks = LeakSearch(logdir, recipes.values())
    with BundleWriter(file) as bundle:
        for name in sorted(members):
            bundle.add(name, leaks.read_content(name, members[name]))
        manifest = Manifest(
            versions=list_package_versions(),
            cells={key: _build_bundled_cell(logdir, key, cell) for key, cell in cells.items()},
            code=load_code_states(logdir),
            unfinished=missing,
            members=bundle.members,
        )
        leaks.check_member(MANIFEST_NAME, manifest.model_dump_json().encode())
        bundle.finish(manifest)
    attempts = sum(ATTEMPTS in path.parent.name for path in stored)
    replies = sum(name.startswith(f"{REPLIES}/") for name in members)
    return PackedBundle(file, len(stored) - attempts, attempts, replies, missing, tuple(leaks.list_notes()))


def _list_stored(logdir: Path) -> dict[Path, str]:
    """List every record and attempt of a log folder, with its config hash.

    Raises:
        ConfigError: If there are none, or a file is not a record of ours.
    """
    if not (logdir / OWN_FOLDER).is_dir():
        raise ConfigError(f"'{logdir}' is no log folder of `agentsys run`; give the logdir of a run.")
    unpack_shards(str(logdir))
    hashes = {}
    for path in sorted(logdir.rglob("*.json")):
        if any(part.startswith(".") for part in path.relative_to(logdir).parts):
            continue
        try:
            hashes[path] = str(orjson.loads(read_json_bytes(path))[OWN_KEY]["config_hash"])
        except (OSError, UnreadableRecord, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{path} is no record of `agentsys run`, or is damaged: a bundle holds our own runs alone. "
                "Move it elsewhere, or run its case again."
            ) from None
    if not hashes:
        raise ConfigError(f"'{logdir}' holds no records.")
    return hashes


def _load_recipe(logdir: Path, config_hash: str, stored: Mapping[Path, str]) -> Recipe:
    recipe = load_recipe(logdir, config_hash)
    if recipe is None:
        first = next(path for path, stored_hash in stored.items() if stored_hash == config_hash)
        raise ConfigError(
            f"Nothing tells how {first} can be run again: no recipe was kept with it. {_RERUN_HINT}"
        )
    return recipe


def _collect_kept(logdir: Path, cell: PortableCell) -> dict[str, Path]:
    folders = {name: logdir / OWN_FOLDER / name for name in (*cell.kept, INFERRED_FOLDER)}
    return {
        f"{KEPT}/{name}/{path.relative_to(folder).as_posix()}": path
        for name, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _collect_replies(logdir: Path, recipes: Iterable[Recipe]) -> dict[str, Path]:
    """Collect the models' replies: all caches that were used.

    Raises:
        ConfigError: If a model was asked without a cache.
    """
    folders: dict[Path, None] = {}
    for recipe in recipes:
        asked = [model for model in _iterate_models(recipe) if not _is_scripted(model)]
        cache = recipe.settings["cache"]
        for model in asked:
            if cache["mode"] == CacheMode.OFF or not (
                parse_card(model).cache or cache["mode"] == CacheMode.READ_ONLY
            ):
                raise ConfigError(
                    f"Model '{model.get('name')}' was asked without a cache, so that its replies are gone: "
                    "set model.cache=true and cache.mode=read_write, and run into another logdir."
                )
        if asked:
            own = logdir / OWN_FOLDER / OWN_REPLIES
            folders[Path(recipe.folder) / cache["dir"] if cache["dir"] else own] = None
    members = {
        f"{REPLIES}/{path.relative_to(folder).as_posix()}": path
        for folder in folders
        for path in sorted(folder.glob("*/*.json"))
        if _REPLY_NAME.fullmatch(f"{path.parent.name}/{path.name}")
    }
    if folders and not members:
        raise ConfigError(
            f"No replies are kept in {next(iter(folders))}; a bundle cannot be run without them."
        )
    return members


def _iterate_models(recipe: Recipe) -> Iterator[Mapping[str, Any]]:
    settings = check_bundled_settings(recipe.settings, Path())
    model = resolve_model_config(settings)
    yield model
    names = {str(name) for name in (model.get("roles") or {}).values() if name is not None}
    yield from (settings.others[name] for name in sorted(names & settings.others.keys()))


def _is_scripted(model: Mapping[str, Any]) -> bool:
    """True if a model is simulated by our own code, which needs no cached replies."""
    # Asked of a class, for which `isinstance` with a protocol does not work.
    return hasattr(find_model_class(str(model.get("name")), model.get("_target_")), "for_scene")


def _build_bundled_cell(logdir: Path, config_hash: str, cell: PortableCell) -> BundledCell:
    identity = check_bundled_settings(cell.settings, Path()).identity
    known = Store(logdir).load_config_of_hash(config_hash) or {}
    return BundledCell(
        settings=cell.settings, identity=identity | {"versions": known.get("versions", identity["versions"])}
    )
