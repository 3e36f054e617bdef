"""`pack`: a log folder -> a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsys.bundles.archive import BundleWriter
from agentsys.bundles.leaks import LeakSearch
from agentsys.bundles.manifest import KEPT, RECORDS, REPLIES, BundledCell, Manifest
from agentsys.bundles.portable import PortableCell, check_bundled_settings, make_portable
from agentsys.bundles.surroundings import hash_data_files, list_package_versions
from agentsys.errors import ConfigError
from agentsys.grouping import group_by
from agentsys.models.card import parse_card
from agentsys.models.chat import SceneModel
from agentsys.models.provider import find_model_class
from agentsys.models.wrappers.reply_store import CacheMode
from agentsys.records.case import ATTEMPTS
from agentsys.records.old_shards import unpack_shards
from agentsys.records.schema import OWN_KEY
from agentsys.records.unfinished import find_unfinished
from agentsys.records.unreadable import UnreadableRecord
from agentsys.runs.cell import resolve_model_config
from agentsys.runs.instantiate import instantiate
from agentsys.runs.provenance.package_files import load_code_states
from agentsys.runs.provenance.recipe import Recipe, load_recipe
from agentsys.runs.store import OWN_FOLDER, Store
from agentsys.runs.store import REPLIES_FOLDER as OWN_REPLIES

_REPLY_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.json")
"""A kept reply's name in its folder."""
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
    """What to look at before it is published."""


class _StoredRecord(NamedTuple):
    """What a record says of where it belongs."""

    path: Path
    """Of its file, or the one it would have."""
    config_hash: str
    suite: str


def pack_bundle(logdir: Path, file: Path) -> PackedBundle:
    """Write a bundle of a log folder.

    Raises:
        ConfigError: If there is nothing to pack, something cannot be packed, or the file cannot be written.
    """
    stored = _list_stored(logdir)
    recipes = {one: _load_recipe(logdir, one, stored) for one in sorted({case.config_hash for case in stored})}
    cells = {one: make_portable(recipe) for one, recipe in recipes.items()}
    members = {f"{RECORDS}/{case.path.relative_to(logdir).as_posix()}": case.path for case in stored}
    for cell in cells.values():
        members |= cell.members | _collect_kept(logdir, cell)
    members |= _collect_replies(logdir, recipes.values())
    missing = sum(lacking for one in find_unfinished([logdir]) for lacking, _ in one.missing.values())
    leaks = LeakSearch(logdir, recipes.values())
    with BundleWriter(file) as bundle:
        for name in sorted(members):
            bundle.add(name, leaks.read_content(name, members[name]))
        manifest = Manifest(
            versions=list_package_versions(),
            cells={one: _build_bundled_cell(logdir, one, cell) for one, cell in cells.items()},
            code=load_code_states(logdir),
            data=_collect_data(cells, stored),
            unfinished=missing,
            members=bundle.members,
        )
        leaks.check_member("bundle.json", manifest.model_dump_json().encode())
        bundle.finish(manifest)
    attempts = sum(ATTEMPTS in str(case.path.parent.name) for case in stored)
    replies = sum(name.startswith(f"{REPLIES}/") for name in members)
    return PackedBundle(file, len(stored) - attempts, attempts, replies, missing, tuple(leaks.list_notes()))


def _list_stored(logdir: Path) -> list[_StoredRecord]:
    """Every record and attempt of a log folder.

    Raises:
        ConfigError: If there are none, or others than ours.
    """
    if not (logdir / OWN_FOLDER).is_dir():
        raise ConfigError(f"'{logdir}' is no log folder of `agentsys run`; give the logdir of a run.")
    unpack_shards(str(logdir))
    files = {path.relative_to(logdir).as_posix() for path in logdir.rglob("*.json")}
    found = []
    for key in sorted(key for key in files if not any(part.startswith(".") for part in key.split("/"))):
        path = logdir / key
        try:
            block = orjson.loads(path.read_bytes())[OWN_KEY]
            found.append(_StoredRecord(path, str(block["config_hash"]), str(block["case"]["suite"])))
        except (OSError, UnreadableRecord, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{path} is no record of `agentsys run`, or is damaged: a bundle holds our own runs alone. "
                "Move it elsewhere, or run its case again."
            ) from None
    if not found:
        raise ConfigError(f"'{logdir}' holds no records.")
    return found


def _load_recipe(logdir: Path, config_hash: str, stored: Iterable[_StoredRecord]) -> Recipe:
    recipe = load_recipe(logdir, config_hash)
    if recipe is None:
        first = next(case.path for case in stored if case.config_hash == config_hash)
        raise ConfigError(f"Nothing tells how {first} can be run again: no recipe was kept with it. {_RERUN_HINT}")
    return recipe


def _collect_kept(logdir: Path, cell: PortableCell) -> dict[str, Path]:
    """What the cell's defense keeps beside the runs."""
    folders = {name: logdir / OWN_FOLDER / name for name in cell.kept}
    return {
        f"{KEPT}/{name}/{path.relative_to(folder).as_posix()}": path
        for name, folder in folders.items()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _collect_replies(logdir: Path, recipes: Iterable[Recipe]) -> dict[str, Path]:
    """The replies that models gave: all of the caches that were used.

    Raises:
        ConfigError: If a model was asked without one.
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
    found = {
        f"{REPLIES}/{path.relative_to(folder).as_posix()}": path
        for folder in folders
        for path in sorted(folder.glob("*/*.json"))
        if _REPLY_NAME.fullmatch(f"{path.parent.name}/{path.name}")
    }
    if folders and not found:
        raise ConfigError(
            f"No replies are kept in {next(iter(folders))}; a bundle cannot be run without them."
        )
    return found


def _iterate_models(recipe: Recipe) -> Iterator[Mapping[str, Any]]:
    """The models that the cell's requests went to."""
    settings = check_bundled_settings(recipe.settings, Path())
    model = resolve_model_config(settings)
    yield model
    names = {str(name) for name in (model.get("roles") or {}).values() if name is not None}
    yield from (settings.others[name] for name in sorted(names & settings.others.keys()))


def _is_scripted(model: Mapping[str, Any]) -> bool:
    """Whether it is played by our own code, which needs no reply kept."""
    return isinstance(find_model_class(str(model.get("name")), model.get("_target_")), SceneModel)


def _build_bundled_cell(logdir: Path, config_hash: str, cell: PortableCell) -> BundledCell:
    """A cell as the manifest has it, under the versions that it was run with."""
    identity = check_bundled_settings(cell.settings, Path()).identity
    known = Store(logdir).config(config_hash) or {}
    return BundledCell(
        settings=cell.settings, identity=identity | {"versions": known.get("versions", identity["versions"])}
    )


def _collect_data(cells: Mapping[str, PortableCell], stored: Iterable[_StoredRecord]) -> dict[str, str]:
    found: dict[str, str] = {}
    for config_hash, cases in group_by(stored, lambda case: case.config_hash).items():
        options = cells[config_hash].settings["benchmark"]
        if str(options.get("data", "")).startswith("bundle:"):
            continue
        found |= hash_data_files(instantiate("benchmark", options), options, {case.suite for case in cases})
    return found
