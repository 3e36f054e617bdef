"""Things that a config only points at, though cases depend on them: files, recorded runs, code, configs.

A user's own source files are known by content: the module that a `_target_` (or a list `modules`) names, the
whole package it lies in, every further module of the user's that these import, and files beside them that
their source names (`prompt.txt`). Environment variables are refused: their values would stand in records.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from agentsys.base.config_catalog import find_config_file, list_config_names, load_config
from agentsys.base.python_parser import parse_module
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.recorded_runs import digest_records, find_pipeline_folder
from agentsys.runs.settings import NOT_IDENTITY, Settings, not_identity, without_keys


def add_contents(cells: Sequence[Settings], config_dirs: Sequence[Path]) -> list[Settings]:
    """The same settings, with the content of what they point at.

    Raises:
        ConfigError: If a file cannot be read, a model is unknown, or there are no recorded runs to replay.
    """
    digests: dict[tuple[Path, str], str] = {}
    return [_add_content(one, config_dirs, digests) for one in cells]


def _add_content(
    settings: Settings, config_dirs: Sequence[Path], digests: dict[tuple[Path, str], str]
) -> Settings:
    from agentsys.runs.instantiate import find_contents

    nodes = {group: getattr(settings, group) for group in NOT_IDENTITY}
    groups = {group: without_keys(node, not_identity(group, node)) for group, node in nodes.items()}
    found = [*_find_option_files(groups), *_find_named_files(settings.attack, "attack")]
    files = {key: _digest_file(key, path) for key, path in found}
    files |= {f"defense.{name}": one for name, one in find_contents(settings.defense).items()}
    folder = find_recorded_folder(settings.model)
    if folder is not None:
        key = folder, settings.labels["attack"]
        if key not in digests:
            digests[key] = digest_records(*key)
        files["model.traces"] = digests[key]
    names = [*(settings.model.get("roles") or {}).values(), settings.attack.get("attacker")]
    others = {str(name): load_config("model", str(name), config_dirs) for name in names if name is not None}
    code = hash_source_files(
        [settings.model, settings.defense, settings.attack, settings.benchmark, *others.values()]
    )
    return settings.model_copy(update={"files": files, "others": others, "code": code})


def find_recorded_folder(model: Mapping[str, Any]) -> Path | None:
    """The folder of recorded runs that a model answers from; None for models that do not.

    Raises:
        ConfigError: If it is missing, or it is not clear which one is meant.
    """
    traces = model.get("traces")
    if not isinstance(traces, str):
        return None
    pipeline = model.get("pipeline")
    return find_pipeline_folder(str(model.get("name")), traces, None if pipeline is None else str(pipeline))


def replay_label(name: str, model: Mapping[str, Any]) -> str:
    """The label of a model that answers from recorded runs, e.g. `replay:gpt-4o-mini-2024-07-18`.

    Raises:
        ConfigError: As `find_recorded_folder` does.
    """
    folder = find_recorded_folder(model)
    return name if folder is None else f"{name}:{folder.name}"


def label_from_file(choice: str, attack: Mapping[str, Any]) -> str | None:
    """The label of an attack that has an option `file` and no name: `cached-mine` for `mine.json`."""
    from agentsys.runs.instantiate import label_of_file

    file = attack.get("file")
    return f"{choice}-{label_of_file(attack, Path(file))}" if isinstance(file, str) and file else None


def artefact_label(attack: Mapping[str, Any]) -> str:
    """Mark that a search's files add to an attack's label: the beginning of their contents' hashes.

    Raises:
        ConfigError: If one cannot be read.
    """
    given = {name: attack.get(name) for name in ("artefact", "knowledge_file")}
    return "".join(
        f"+{name}={_digest_file(f'attack.{name}', Path(file))[:8]}"
        for name, file in given.items()
        if isinstance(file, str) and file
    )


def _find_option_files(value: object, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Options that hold the path of a file, a defense's list of words for one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _find_option_files(inner, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, str) and ("." in value or "/" in value) and is_file(Path(value)):
        yield prefix, Path(value)


def _find_named_files(attack: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Path]]:
    base = attack.get("base")
    for option in ("file", "artefact", "knowledge_file"):
        file = attack.get(option)
        if isinstance(file, str) and file:
            yield f"{prefix}.{option}", Path(file)
    if isinstance(base, Mapping):
        yield from _find_named_files(base, f"{prefix}.base")


def _digest_file(key: str, path: Path) -> str:
    try:
        return content_digest(path)
    except OSError as error:
        raise ConfigError(f"{key} {path} cannot be read: {error.strerror}. Give an existing file.") from None


def resolve_names(settings: Settings, config_dirs: Sequence[Path]) -> Settings:
    """Replace names of an attack (`attack.base`) and of defenses that the defense holds by their configs.

    Raises:
        ConfigError: If there is none of the name, or it needs a setting that its YAML leaves open.
    """
    attack, base = settings.attack, settings.attack.get("base")
    if isinstance(base, str):
        attack = {**attack, "base": _load_named_config("attack", "base", base, config_dirs, settings.model)}
    defense = resolve_defense_names(settings.defense, config_dirs)
    return settings.model_copy(update={"attack": attack, "defense": defense})


def load_defense_config(name: str, config_dirs: Sequence[Path] = ()) -> dict[str, Any]:
    """The config of a defense, with the configs of all that it holds; from its file, nothing overridden.

    Raises:
        ConfigError: If there is no such defense, or as `resolve_defense_names` does.
    """
    return resolve_defense_names(load_config("defense", name, config_dirs), config_dirs, (name,))


def resolve_defense_names(
    defense: Mapping[str, Any], config_dirs: Sequence[Path], inside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A defense's config, with each name that it has in place of a defense replaced by that one's config.

    Raises:
        ConfigError: If there is no such defense, it needs a setting that its YAML leaves open, or a defense
            holds itself.
    """
    from agentsys.runs.instantiate import find_defense_options

    def resolve(option: str, value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(option, one) for one in value]
        name = value if isinstance(value, str) else None
        if name in inside:
            raise ConfigError(f"defense.{option}: '{name}' holds itself; take it out there.")
        held = value if name is None else _load_named_config("defense", option, name, config_dirs)
        if not isinstance(held, Mapping):
            return held
        return resolve_defense_names(held, config_dirs, inside if name is None else (*inside, name))

    return {
        **defense,
        **{one: resolve(one, defense[one]) for one in find_defense_options(defense) if one in defense},
    }


def fill_auto_options(attack: DictConfig, model: Mapping[str, Any]) -> None:
    """Put what an attack wants to know of the attacked model into its config: its name then says it.

    Raises:
        ConfigError: If the model's YAML does not say.
    """
    from agentsys.runs.instantiate import resolve_auto_options

    written = OmegaConf.to_container(attack)
    assert isinstance(written, dict)
    attack.update(resolve_auto_options({str(key): value for key, value in written.items()}, model))


def _load_named_config(
    group: str, option: str, name: str, config_dirs: Sequence[Path], model: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The config that a name in an option stands for; with a model, told of it what it wants to know."""
    setting, names = f"{group}.{option}", list_config_names(group, config_dirs)
    if name not in names:
        raise ConfigError(unknown_name(setting, name, names))
    written = load_config(group, name, config_dirs)
    refuse_environment({group: {option: written}})
    # As Hydra reads it: a date stays the text it is written as.
    config = OmegaConf.load(find_config_file(group, name, config_dirs))
    assert isinstance(config, DictConfig)
    if model is not None:
        fill_auto_options(config, model)
    open_keys = sorted(str(key) for key in OmegaConf.missing_keys(config))
    if open_keys:
        raise ConfigError(
            f"{setting}: '{name}' needs {open_keys[0]}, which its YAML leaves open; put a YAML of your own"
            f" with it into a folder {group}/ and name that one (--config-dir)."
        )
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        where = find_config_file(group, name, config_dirs)
        raise ConfigError(f"{setting}: {where}: {str(error).splitlines()[0]}") from None
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


_ENVIRONMENT = re.compile(r"\$\{\s*(oc\.)?env\s*:\s*([^}]*)")
_EXEMPT = {"logdir"}
"""Settings that stand in no record and no name; a cluster's scratch folder is best taken from a variable."""


def refuse_environment(value: Any, where: str = "") -> None:
    """See that no setting reads an environment variable but through an option that names one.

    Raises:
        ConfigError: Naming the setting and the variable.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if where or key not in _EXEMPT:
                refuse_environment(inner, f"{where}.{key}" if where else str(key))
    elif isinstance(value, list):
        for inner in value:
            refuse_environment(inner, where)
    elif isinstance(value, str) and (found := _ENVIRONMENT.search(value)):
        variable = found[2].split(",")[0].strip()
        raise ConfigError(
            f"Setting '{where}' reads the environment variable {variable}, whose value would stand in names"
            " and records. Write the value itself; a key is named, as in model.api_key_env=VARIABLE."
        )


_OURS = {"agentsys", "baselines"}
_INSTALLED = {"site-packages", "dist-packages"}
_LONGEST_NAME = 200
"""Characters of a text that may name a file."""
_LARGE = 16_000_000
"""Bytes from which a file (weights, say) is known by its size alone."""

_last_digests: dict[Path, str] = {}
"""File -> digest, as this process last met it."""


def hash_source_files(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Source file, as its folder's modules call it -> digest of its content, for what some configs name.

    A module that cannot be found has no entry: whoever builds the object says so. If a file changed since
    this process met it, its modules are forgotten, so that the code that runs is the code that was hashed.
    """
    shown = _name_sources(nodes)
    digests = {path: _digest_or_note(path) for path in shown}
    if any(_last_digests.get(path, digest) != digest for path, digest in digests.items()):
        _forget_modules(digests)
    _last_digests.update(digests)
    return {shown[path]: digest for path, digest in digests.items()}


def locate_source_files(nodes: Iterable[Mapping[str, Any]]) -> dict[str, Path]:
    """The same source files -> where they lie."""
    return {name: path for path, name in _name_sources(nodes).items()}


def _name_sources(nodes: Iterable[Mapping[str, Any]]) -> dict[Path, str]:
    sources = _SourceCollector()
    for name in sorted({name for node in nodes for name in _named_modules(node)}):
        sources.add(name)
    return sources.names


def _named_modules(value: object, option: object = None) -> Iterator[str]:
    """The modules that a config names."""
    if isinstance(value, Mapping):
        yield from (name for key, inner in value.items() for name in _named_modules(inner, key))
    elif isinstance(value, (list, tuple)):
        yield from map(str, value) if option == "modules" else chain.from_iterable(map(_named_modules, value))
    elif option == "_target_" and isinstance(value, str):
        yield value.rpartition(".")[0]


class _SourceCollector:
    """Collects the files behind modules, without importing any."""

    def __init__(self) -> None:
        self.names: dict[Path, str] = {}
        """File -> its name: relative to the folder that its module is imported from."""
        self._places: dict[str, Path | None] = {}
        self._whole: set[Path] = set()
        self._read: set[Path] = set()

    def add(self, module: str) -> None:
        """The files behind a module that a config names, and behind those that it imports."""
        waiting = [module]
        while waiting:
            name = waiting.pop()
            place = self._locate(name)
            installed = place is not None and place.parent.name in _INSTALLED
            if place is None or (installed and name != module):
                continue
            self._keep_all(place)
            if installed:
                continue
            for path in _list_module_files(name, place):
                if path not in self._read:
                    self._read.add(path)
                    waiting += self._scan_file(path, place)

    def _locate(self, module: str) -> Path | None:
        top = module.partition(".")[0]
        if top not in self._places:
            self._places[top] = _locate_module(top)
        return self._places[top]

    def _keep_all(self, place: Path) -> None:
        """A top-level module's file, or everything in a top-level package."""
        if place in self._whole:
            return
        self._whole.add(place)
        for path in [place] if place.is_file() else sorted(place.rglob("*.py")):
            if not any(part.startswith(".") for part in path.relative_to(place.parent).parts):
                self._keep_file(path, place.parent)

    def _scan_file(self, path: Path, place: Path) -> Iterator[str]:
        """Keep the files that a source file names, and give the modules it imports."""
        tree = _parse_file(path)
        for beside in _named_files(tree, path.parent):
            self._keep_file(beside, place.parent)
        # The dotted parts that a relative import in the file starts from.
        package = [] if place.is_file() else list(path.parent.relative_to(place.parent).parts)
        yield from _imported_modules(tree, package)

    def _keep_file(self, path: Path, root: Path) -> None:
        if path not in self.names:
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
            self.names[path] = str(path) if name in self.names.values() else name


def _locate_module(top: str) -> Path | None:
    """A top-level module's file or a package's folder; None for ours, Python's own and unknown ones."""
    if not top or top in _OURS or top in sys.stdlib_module_names:
        return None
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # `__main__` and modules made by hand have none
        return None
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or []), *([spec.origin] if spec.origin else [])]
    place = Path(places[0]) if places else None
    return place.resolve() if place is not None and place.exists() else None


def _list_module_files(module: str, place: Path) -> Iterator[Path]:
    """The files that importing a module runs: its packages' `__init__`s and its own."""
    if place.is_file():
        yield place
        return
    here = place
    for part in ["", *module.split(".")[1:]]:
        here = here / part
        yield from (path for path in (here / "__init__.py", here.with_suffix(".py")) if path.is_file())


def _parse_file(path: Path) -> ast.Module:
    try:
        return parse_module(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # importing it says what is wrong
        return ast.Module([], [])


def _imported_modules(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """Full names of everything a file imports, also inside functions; `from a import b` counts as `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*base, alias.name]) for alias in node.names)


def _named_files(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """The files that a text in the source names, seen from the folder it is in."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and "." in text and is_file(folder / text):
            yield (folder / text).resolve()


def is_file(path: Path) -> bool:
    """Say whether there is a file; any text may be asked about, also what can be no file's name."""
    text = str(path)
    try:
        return text.isprintable() and len(path.name) <= _LONGEST_NAME and path.is_file()
    except (OSError, ValueError):
        return False


def content_digest(path: Path) -> str:
    """The beginning of the hash of a file's content, or of a folder's files with their places in it.

    Raises:
        OSError: If it cannot be read.
    """
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        listed = [f"{file.relative_to(path)} {content_digest(file)}" for file in files]
        return hashlib.sha256("\n".join(listed).encode()).hexdigest()[:16]
    size = path.stat().st_size
    content = path.read_bytes() if size < _LARGE else str(size).encode()
    return hashlib.sha256(content).hexdigest()[:16]


def _digest_or_note(path: Path) -> str:
    try:
        return content_digest(path)
    except OSError:
        return "unreadable"


def _forget_modules(files: Iterable[Path]) -> None:
    """Drop the modules of these files, so that they are imported anew."""
    gone = {str(path) for path in files}
    for name, module in list(sys.modules.items()):
        place = getattr(module, "__file__", None)
        if isinstance(place, str) and str(Path(place).resolve()) in gone:
            del sys.modules[name]
    importlib.invalidate_caches()
