"""What a run keeps beside its records so that others can repeat it: recipes and code states.

An identity (`Settings.identity`) says whether two cells are the same; a `Recipe` is enough to build one.
A state of our code is a digest for each file of the packages: versions change less often than code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

import agentsys
from agentsys.base.atomic_file import write_atomically
from agentsys.base.object_import import with_texts, with_todays_paths
from agentsys.models.secrets import mask_credentials
from agentsys.runs.settings import Settings
from agentsys.runs.source_files import SourceCollector
from agentsys.runs.store import Store

_CODE_SUFFIX = ".code"
_SKIPPED_FOLDERS = {"__pycache__"}
_CASE_PACKAGES = ("attacks", "base", "benchmarks", "defense", "models", "records", "runs", "simulated")
"""The rooms of `agentsys` that a case runs through; the others print, compare and show."""


@lru_cache(maxsize=1)
def hash_package_files() -> Mapping[str, str]:
    """File that cases run through, from its package's name on -> the beginning of its SHA-256."""
    ours = Path(next(iter(agentsys.__path__)))
    beside = find_spec("baselines")
    theirs = [Path(place) for place in (beside and beside.submodule_search_locations) or ()]
    found = {}
    for place in (*sorted(ours.glob("*.py")), *(ours / room for room in _CASE_PACKAGES), *theirs):
        for path in _list_files(place):
            found[path.relative_to(place.parents[1] if place.parent == ours else place.parent).as_posix()] = (
                hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            )
    return found


def _list_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [
        path
        for path in sorted(place.rglob("*"))
        if path.is_file() and not _SKIPPED_FOLDERS & set(path.parts) and not path.name.startswith(".")
    ]


def store_code_state(store: Store) -> None:
    """Keep the state of the code that is about to run cases.

    Raises:
        StoreError: If it cannot be written.
    """
    data = orjson.dumps(dict(hash_package_files()))
    path = _code_folder(store.root) / f"{hashlib.sha256(data).hexdigest()[:16]}{_CODE_SUFFIX}"
    try:
        if not path.exists():
            write_atomically(path, data)
    except OSError as error:
        raise store.unwritable(path, error) from None


def load_code_states(logdir: Path) -> list[dict[str, str]]:
    """The states of the code that cases of a log folder were run with; empty where none were kept."""
    found = []
    for path in sorted(_code_folder(logdir).glob(f"*{_CODE_SUFFIX}")):
        try:
            state = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(state, dict) and all(isinstance(digest, str) for digest in state.values()):
            found.append(state)
    return found


def _code_folder(logdir: Path) -> Path:
    return logdir / ".agentsys" / "code"


_RUN_CHOICES = {
    "executor",
    "limit",
    "user_tasks",
    "injection_tasks",
    "epochs",
    "logdir",
    "budget",
    "preflight",
}
"""Settings that say which cases are run, and how, and not what a case is."""
_URL_QUERY = re.compile(r"(?<=://)([^\s?#]*)[?#]\S*")


class Recipe(BaseModel):
    """The settings of a cell, and where what they point at lay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Annotated[dict[str, Any], AfterValidator(with_todays_paths)]
    """As `Settings` has them, less what only says which cases were run; credentials in addresses masked."""
    folder: str
    """Folder that relative paths in them start from."""
    code: dict[str, str] = {}
    """Source file of the user's, as `Settings.code` calls it -> its path."""


def build_recipe(settings: Settings) -> Recipe:
    """The recipe of a cell."""
    plain = settings.model_dump(mode="json", exclude=_RUN_CHOICES)
    code = {}
    if settings.code:
        nodes = [settings.model, settings.defense, settings.attack, settings.benchmark]
        names = SourceCollector([*nodes, *settings.others.values()]).names
        code = {name: str(path) for path, name in names.items() if name in settings.code}
    return Recipe(
        settings=with_texts(mask_credentials(plain), "base_url", _without_query),
        folder=str(Path.cwd()),
        code=code,
    )


def store_recipe(store: Store, settings: Settings) -> None:
    """Keep a cell's recipe beside the records that name its hash; the newest one counts.

    Raises:
        StoreError: If it cannot be written.
    """
    path = _recipe_path(store.root, settings.config_hash)
    # Not sorted: the keys of replies depend on the order of a model's options.
    data = json.dumps(build_recipe(settings).model_dump(), indent=2, default=str).encode()
    try:
        if not path.exists() or path.read_bytes() != data:
            write_atomically(path, data)
    except OSError as error:
        raise store.unwritable(path, error) from None


def load_recipe(logdir: Path, config_hash: str) -> Recipe | None:
    """The recipe of a hash; None where none was kept, or none that can be read."""
    try:
        return Recipe.model_validate(json.loads(_recipe_path(logdir, config_hash).read_bytes()))
    except (OSError, ValueError, RecursionError, ValidationError):
        return None


def _recipe_path(logdir: Path, config_hash: str) -> Path:
    return logdir / ".agentsys" / "configs" / f"{config_hash}.recipe"


def _without_query(address: str) -> str:
    return _URL_QUERY.sub(r"\1?***", address)
