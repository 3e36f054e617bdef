"""Runs bundled cases again from a bundle's own replies; nothing is sent anywhere.

A portable cell is a recipe without its machine's paths: `bundle:files/...` names a member of the bundle.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from agentsys.base.config_catalog import is_prefixed, list_config_names
from agentsys.base.grouping import join_names
from agentsys.base.json_values import map_texts
from agentsys.errors import ConfigError
from agentsys.models.wrappers.reply_cache import CacheMode
from agentsys.records.case import ATTEMPTS, Case, make_safe_name
from agentsys.records.runs_source import RECORDS
from agentsys.records.schema import OWN_KEY
from agentsys.runs.cell import Cell, CellBuilder, Job
from agentsys.runs.claims import Claims
from agentsys.runs.executors import PlainRunner, run_on_threads
from agentsys.runs.instantiate import load_class
from agentsys.runs.plan import list_differences
from agentsys.runs.references import add_contents
from agentsys.runs.run_totals import Listener
from agentsys.runs.search_runner import SearchRunner
from agentsys.runs.settings import Settings, validate_settings
from agentsys.runs.source_files import compute_content_digest
from agentsys.runs.store import OWN_FOLDER, Recipe, Store, hash_package_files
from agentsys_plugins.bundles.bundle_archive import (
    CODE,
    FILES,
    KEPT,
    MEMBER_PREFIX,
    REPLIES,
    BundledCell,
    BundleReader,
    Manifest,
    list_package_versions,
)

_CHECKED_GROUPS = ("model", "defense", "attack", "benchmark")
"""Groups of a bundle's settings that are searched for paths."""
_FOLDER_OPTIONS = {
    "attack.file",
    "attack.artefact",
    "attack.base.file",
    "attack.base.artefact",
    "benchmark.data",
}
"""Options that may name a folder, as it is only read."""
_AGAIN_HINT = "Put back what it was then, or run the cases anew (agentsys run ... --again)."


@dataclass
class PortableCell:
    """A cell's settings in the form of a bundle, and the files of the members that they name."""

    settings: dict[str, Any]
    members: dict[str, Path] = field(default_factory=dict)
    """Member -> file."""
    kept: set[str] = field(default_factory=set)
    """Folders in OWN_FOLDER in which the defense keeps files."""


def make_portable(recipe: Recipe) -> PortableCell:
    """Replace the machine's paths in a recipe by members of the bundle.

    Raises:
        ConfigError: If a file was changed since the run, or a path cannot be bundled.
    """
    cell = PortableCell(deepcopy(recipe.settings))
    settings, folder = cell.settings, Path(recipe.folder)
    settings["cache"] = {}
    _refuse_folders(settings)
    for option, digest in (settings.get("files") or {}).items():
        _take_file(cell, option, folder, digest)
    if settings["benchmark"].get("data") not in (None, "sample", "fetched"):
        _take_file(cell, "benchmark.data", folder, None)
    configs = [node for _, node in walk_options(settings["defense"]) if isinstance(node, dict)]
    for node in (config for config in configs if "_target_" in config):
        for option, own in load_class("defense", node).keeps.items():
            cell.kept.add(own)
            if node.get(option) is not None:
                raise ConfigError(
                    f"defense.{option} is a folder of its own, whose files a bundle does not find: leave it"
                    " out (null) and run again into another logdir."
                )
    for name, file in recipe.code.items():
        _take_code(cell, name, Path(file))
    for option, path in _iterate_existing(settings):
        if path.is_absolute():
            raise ConfigError(
                f"{option} is {path}, a place of this machine that no bundle holds. Name it in a way that"
                " holds elsewhere, and run again into another logdir."
            )
    return cell


_PATH_OPTIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("file", "artefact", "knowledge_file", "dialogue", "tool_labels", "privileges_dir"), ()),
    "source": ("fetched",),
    "data": ("fetched", "sample"),
    "traces": (),
}
"""Options that are paths -> words that are allowed besides a member."""
_PLACE_OF_MACHINE = re.compile(r"(?:[/\\~]|[A-Za-z]:[/\\]|\.\.[/\\]|\S*[/\\]\.\.)\S*")


def _check_paths(settings: Mapping[str, Any]) -> None:
    """Refuse settings that name files outside the bundle, even if these do not exist here.

    Raises:
        ConfigError: If an option is, or looks like, any other path.
    """
    for option, value in walk_options({group: settings.get(group, {}) for group in _CHECKED_GROUPS}):
        if not isinstance(value, str) or value.startswith(MEMBER_PREFIX):
            continue
        name = option.rpartition(".")[2]
        if value not in _PATH_OPTIONS.get(name, (value,)) or _PLACE_OF_MACHINE.fullmatch(value):
            raise ConfigError(
                f"The bundle is refused: {option} is {value[:100]!a}, a place of this machine; in a bundle a"
                f" path begins with {MEMBER_PREFIX}"
            )


def insert_paths(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Replace names of members in a bundle's settings by the paths of the unpacked files.

    Raises:
        ConfigError: If the settings name a path outside the bundle.
    """
    _check_paths(settings)

    def resolve_member_path(value: str) -> str:
        if not value.startswith(MEMBER_PREFIX):
            return value
        path = (folder / value.removeprefix(MEMBER_PREFIX)).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ConfigError(f"The bundle is refused: a setting names {value[:100]!a}.")
        return str(path)

    inserted: dict[str, Any] = map_texts(settings, resolve_member_path)
    for option, path in _iterate_existing(inserted):
        # A folder of weights or a checkout could hold code.
        if path.is_relative_to(folder.resolve()) and path.is_dir() and option not in _FOLDER_OPTIONS:
            raise ConfigError(f"The bundle is refused: {option} names a folder in it.")
    return inserted


def check_bundled_settings(values: Mapping[str, Any], logdir: Path, **more: Any) -> Settings:
    """Validate a bundle's settings, for a run into a log folder.

    Raises:
        ConfigError: If they are invalid.
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
    """Add the file or folder that an option names to the members, and set the option to the member."""
    above, _, last = option.rpartition(".")
    node: Any = reduce(_get_inner, above.split("."), cell.settings)
    value = _get_inner(node, last)
    if not isinstance(value, str):
        raise ConfigError(f"{option} names a file in a way that no bundle can follow: {value!r}.")
    path = (folder / Path(value).expanduser()).absolute()
    now = _digest_unchanged(f"{option} {path}", path, digest)
    top = f"{FILES}/{make_safe_name(option)}-{now[:8]}/{make_safe_name(path.name)}"
    node[int(last) if isinstance(node, list) else last] = f"{MEMBER_PREFIX}{top}"
    if path.is_file():
        cell.members[top] = path
        return
    for inner in sorted(file for file in path.rglob("*") if file.is_file()):
        cell.members[f"{top}/{inner.relative_to(path).as_posix()}"] = inner


def _get_inner(node: Any, name: str) -> Any:
    """Return the value of a key of a mapping, or of an index of a list; None if there is none."""
    if isinstance(node, list):
        return node[int(name)] if name.isdecimal() and int(name) < len(node) else None
    return node.get(name) if isinstance(node, dict) else None


def _digest_unchanged(name: str, path: Path, then: str | None) -> str:
    try:
        now = compute_content_digest(path)
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}. {_AGAIN_HINT}") from None
    if then is not None and now != then:
        raise ConfigError(f"{name} was changed since the run. {_AGAIN_HINT}")
    return now


def _take_code(cell: PortableCell, name: str, path: Path) -> None:
    _digest_unchanged(f"Source file {path}", path, cell.settings["code"][name])
    if Path(name).is_absolute():
        raise ConfigError(
            f"Source file {path} lies outside the folder that its module is imported from, where no bundle "
            "can put it: move it there, and run the cases anew (agentsys run ... --again)."
        )
    cell.members[f"{CODE}/{name}"] = path


def walk_options(value: Any, option: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a value and all values in it, each with its option; items of a list have the list's."""
    yield option, value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from walk_options(inner, f"{option}.{key}" if option else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from walk_options(inner, option)


def _iterate_existing(settings: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """Yield (option, path) of each value that is an existing path on this machine."""
    for option, value in walk_options({group: settings.get(group, {}) for group in _CHECKED_GROUPS}):
        if isinstance(value, str) and _path_exists(Path(value)):
            yield option, Path(value)


def _path_exists(path: Path) -> bool:
    try:
        return path.expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


_RUN_FOLDER = "run"
UNPACK_FOLDERS = {REPLIES: "replies", KEPT: f"{_RUN_FOLDER}/{OWN_FOLDER}", FILES: FILES, CODE: CODE}
"""Folder of a bundle -> folder that it is unpacked to."""


@dataclass(frozen=True)
class RerunPlan:
    """A bundle that is ready to run."""

    store: Store
    """Store of the new records."""
    jobs: tuple[Job, ...]
    cells: Mapping[str, Cell]
    """Config hash in the bundle's records -> cell."""
    identities: Mapping[str, Mapping[str, Any]]
    """The same hash -> the identity of its settings on this machine, with `bundle:` in place of paths."""
    failed: Mapping[str, str]
    """Record -> reason why its case cannot be run."""

    def run(self, listener: Listener, workers: int) -> str | None:
        """Run every case; return the reason if the run ended early, else None."""
        with Claims(self.store) as claims:
            outcome = run_on_threads(
                self.jobs,
                workers=workers,
                store=self.store,
                claims=claims,
                listener=listener,
                meter=None,
                make_runner=lambda context: SearchRunner(context, PlainRunner(context)),
            )
        return outcome.fatal or ("interrupted" if outcome.interrupted else None)


@contextmanager
def make_folder_importable(folder: Path) -> Iterator[None]:
    """Make a bundle's own modules importable inside the block."""
    code_folder = str(folder / CODE)
    sys.path.insert(0, code_folder)
    try:
        yield
    finally:
        sys.path.remove(code_folder)


def prepare_rerun(bundle: BundleReader, folder: Path) -> RerunPlan:
    """Build the cells and jobs of a bundle that was unpacked to `UNPACK_FOLDERS`.

    Raises:
        ConfigError: If its settings are invalid or lead out of it, or this machine lacks something.
    """
    store = Store(folder / _RUN_FOLDER)
    configs = folder / "configs"
    (configs / "model").mkdir(parents=True)
    for cell in bundle.manifest.cells.values():
        _write_models(cell, configs / "model")
    builder = CellBuilder(store, (configs,))
    cells, identities = {}, {}
    for config_hash, cell in bundle.manifest.cells.items():
        settings = _build_settings(cell, folder, configs)
        cells[config_hash] = builder.build(settings)
        content = {name: getattr(settings, name) for name in ("files", "others", "code", "packages")}
        identities[config_hash] = (
            check_bundled_settings(cell.settings, Path()).model_copy(update=content).identity
        )
    jobs, failed = _build_jobs(bundle, cells)
    return RerunPlan(store, tuple(jobs), cells, identities, failed)


def _build_settings(cell: BundledCell, folder: Path, configs: Path) -> Settings:
    replies = {"mode": CacheMode.READ_ONLY, "dir": folder / UNPACK_FOLDERS[REPLIES]}
    settings = check_bundled_settings(
        insert_paths(cell.settings, folder), folder / _RUN_FOLDER, cache=replies, preflight=False
    )
    return add_contents([settings], [configs])[0]


def _write_models(cell: BundledCell, folder: Path) -> None:
    """Write YAMLs for the models of further roles that are not shipped."""
    shipped = set(list_config_names("model"))
    for name, node in (cell.settings.get("others") or {}).items():
        if is_prefixed(name):  # Its card is made from the name.
            continue
        if (
            not isinstance(node, dict)
            or not name.replace("-", "").replace("_", "").replace(".", "").isalnum()
        ):
            raise ConfigError(f"The bundle is refused: it names a model {name[:100]!a}.")
        if name not in shipped:
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(node), encoding="utf-8")


def _build_jobs(bundle: BundleReader, cells: Mapping[str, Cell]) -> tuple[list[Job], dict[str, str]]:
    jobs, failed = [], {}
    for name in bundle.list_members(RECORDS):
        if ATTEMPTS in name:  # Attempts are run by their case's search.
            continue
        try:
            jobs.append(_build_job(name, bundle.read_member(name)[0], cells))
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            failed[name] = f"no case can be read from it ({type(error).__name__})"
    return jobs, failed


def _build_job(name: str, content: bytes, cells: Mapping[str, Cell]) -> Job:
    block = orjson.loads(content)[OWN_KEY]
    case, cell = Case.model_validate(block["case"]), cells[block["config_hash"]]
    suite = cell.benchmark.suite(case.suite)
    there = case.user_task_id in suite.user_tasks or case.user_task_id in suite.injection_tasks
    if not there or name != f"{RECORDS}/{case.key}":
        raise ValueError(name)
    return Job(case, cell)


_MAX_NAMES = 8


def compare_machines(manifest: Manifest, rerun: RerunPlan) -> Iterator[str]:
    """Yield one line for each kind of difference between the bundle's machine and this one."""
    now, files_here = list_package_versions(), hash_package_files()
    versions = [
        f"{name} ({then} then, {now.get(name, 'none')} now)"
        for name, then in sorted(manifest.versions.items())
        if then != now.get(name)
    ]
    # Our files that differ from the most similar code state that cases were run with.
    states = (
        [n for n in sorted({*then, *files_here}) if then.get(n) != files_here.get(n)]
        for then in manifest.code
    )
    kinds = {"versions": versions, "code": min(states, key=len, default=[]), "data": [], "settings": []}
    for config_hash, cell in manifest.cells.items():
        for difference in list_differences(cell.identity, rerun.identities[config_hash]):
            if not difference.startswith("version of "):
                kind = {"code": "code", "content": "data"}.get(difference.partition(" of ")[0], "settings")
                kinds[kind].append(difference)
        if rerun.cells[config_hash].settings.benchmark.get("clock") == "real":
            kinds["settings"].append("tools read the machine's clock (benchmark.clock=real)")
    return (f"{kind}: {join_names(names, _MAX_NAMES)}" for kind, names in kinds.items() if names)
