"""`Store`: a log folder. One file per case, written atomically, in AgentDojo's own layout and JSON.

Beside them what it takes to repeat the cases: plans, resolved configs, recipes, states of the code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict

import agentsys
from agentsys.base.atomic_file import make_folder, write_atomically
from agentsys.base.json_values import to_json_bytes
from agentsys.base.object_import import (
    replace_by_registered_names,
    replace_by_todays_paths,
    replace_texts_of_option,
)
from agentsys.errors import ConfigError
from agentsys.models.secrets import mask_credentials
from agentsys.models.thought_text import ThoughtBlock
from agentsys.records.case import Case
from agentsys.records.old_shards import unpack_shards
from agentsys.records.schema import CaseRecord
from agentsys.records.stored_plan import encode_plan
from agentsys.runs.settings import Settings, StoreMode
from agentsys.runs.source_files import SourceCollector

OWN_FOLDER = ".agentsys"
"""Folder in the log folder for what is ours and no record: resolved configs, the reply cache, privileges."""
REPLIES_FOLDER = "cache"
"""Folder in it for models' replies, unless `cache.dir` names another."""

INFERRED_FOLDER = "inferred"
"""Folder in it for what the question before the first case found out about each model; no part of an identity."""

_log = logging.getLogger(__name__)


class RecordStatus(NamedTuple):
    """State of a case's file, as far as the plan must know it."""

    status: str
    """`missing`, `corrupt`, `ok` or `error`."""
    config_hash: str = ""


class StoreError(ConfigError):
    """The log folder cannot be written; what is finished stays."""


_FOLDER_MODES = {StoreMode.PRIVATE: 0o700, StoreMode.GROUP: 0o2770}


class Store:
    """The log folder of some runs.

    Args:
        root: The folder, which is made if it is not there.
        mode: Who may look into it then.

    Raises:
        StoreError: If it cannot be made or written.
        ConfigError: If it holds records in shards, and these cannot be turned into files.
    """

    def __init__(self, root: Path, mode: StoreMode = StoreMode.PRIVATE) -> None:
        self.root = root
        self.own = root / OWN_FOLDER
        self.marker: Path | None = None
        """A file of the run that writes here: where it is missing, the folder was removed under the run."""
        self._versions_when_planned: dict[str, tuple[int, int, int]] = {}
        """Of the records that were there and not finished; a million missing ones take no room."""
        try:
            if not root.exists():
                make_folder(root)
                if mode in _FOLDER_MODES:
                    root.chmod(_FOLDER_MODES[mode])
            probe = self.own / "probe"
            write_atomically(probe, b"", durable=False)
            probe.unlink(missing_ok=True)  # another process may have been faster
        except OSError as error:
            raise StoreError(
                f"Cannot write to {root}: {error.strerror}. Give another folder: logdir=..."
            ) from None
        unpack_shards(str(root))

    def read_case_status(self, case: Case) -> RecordStatus:
        """Say whether the case is finished. A file that does not parse counts as not run."""
        key = case.key
        version = self._stat_version(key)
        if version is None:
            return RecordStatus("missing")
        found = self.read_file_status(self.root / key)
        if found.status != "ok":
            self._versions_when_planned[key] = version
        return found

    def has_changed_since_planned(self, case: Case) -> bool:
        """Say whether somebody has stored the case since this process saw that it was not finished."""
        now = self._stat_version(case.key)
        return now is not None and now != self._versions_when_planned.get(case.key)

    def check_there(self) -> None:
        """See that the log folder is still the one this run began in.

        Raises:
            StoreError: If it was removed.
        """
        if self.marker is not None and not self.marker.exists():
            raise StoreError(
                f"{self.root} was removed while this run was writing to it; what it held is gone."
            )

    def make_write_error(self, path: Path, error: OSError) -> StoreError:
        """The error for a file that the disk does not take."""
        return StoreError(
            f"Cannot write {path}: {error.strerror}. Finished cases are safe; make room, or give another "
            "logdir=...."
        )

    def read_file_status(self, path: Path) -> RecordStatus:
        """Read the state of a record's file, be it a case's or an attempt's."""
        try:
            block = orjson.loads(path.read_bytes())["agentsys"]
            return RecordStatus(str(block["status"]), str(block["config_hash"]))
        except FileNotFoundError:
            return RecordStatus("missing")
        except (ValueError, KeyError, TypeError, OSError):
            return RecordStatus("corrupt")

    def write(self, record: CaseRecord, agentdojo: Mapping[str, Any]) -> Path:
        """Store a record; what is there is either the old one or the whole new one, never half.

        Raises:
            StoreError: If the disk is full, or the folder cannot be written or is not there any more.
        """
        self.check_there()
        attempt = record.attempt
        path = self.root / (
            record.case.key if attempt is None else record.case.make_attempt_key(attempt.number)
        )
        block = dict(record)
        block["spans"] = block.pop("spans")  # the longest part last, for people who look into the file
        data = to_json_bytes({**agentdojo, "agentsys": block}, indent=True)
        try:
            if path.exists() and self.read_file_status(path).status == "corrupt":
                aside = path.with_suffix(".json.corrupt")
                path.replace(aside)
                told = "%s did not parse; it was kept as %s and the case was run again"
                _log.warning(told, path, aside.name)
            write_atomically(path, data)
        except OSError as error:
            raise self.make_write_error(path, error) from None
        return path

    def load_record(self, case: Case) -> tuple[CaseRecord, str | None] | None:
        """The stored record of a case, and its error; None if there is none that can be read."""
        try:
            fields = orjson.loads((self.root / case.key).read_bytes())
            return CaseRecord.model_validate(fields["agentsys"]), fields.get("error")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def store_plan(self, cases: Iterable[Case]) -> None:
        """Keep what a run is to do, so that readers can name what is missing.

        Raises:
            StoreError: If it cannot be written.
        """
        self.keep_file(*encode_plan(self.root, cases))

    def store_config(self, config_hash: str, identity: Mapping[str, Any]) -> None:
        """Keep a resolved config beside the records that name its hash."""
        data = json.dumps(identity, indent=2, sort_keys=True, default=str).encode()
        self.keep_file(self.own / "configs" / f"{config_hash}.config", data)

    def keep_file(self, path: Path, data: bytes, *, again: bool = False) -> None:
        """Write a file that is not there yet; one that is there only `again` and where it differs.

        Raises:
            StoreError: If it cannot be written.
        """
        try:
            if not path.exists() or (again and path.read_bytes() != data):
                write_atomically(path, data)
        except OSError as error:
            raise self.make_write_error(path, error) from None

    def load_config_of_hash(self, config_hash: str) -> dict[str, Any] | None:
        """The resolved config of a hash, if it was kept; our classes by their registered names."""
        try:
            found = json.loads((self.own / "configs" / f"{config_hash}.config").read_bytes())
        except (OSError, ValueError):
            return None
        return replace_by_registered_names(found) if isinstance(found, dict) else None

    def _stat_version(self, key: str) -> tuple[int, int, int] | None:
        try:
            found = (self.root / key).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size


_CASE_PACKAGES = ("attacks", "base", "benchmarks", "defense", "models", "records", "runs", "simulated")
"""The rooms of `agentsys` that a case runs through; the others print, compare and show."""


@lru_cache(maxsize=1)
def hash_package_files() -> Mapping[str, str]:
    """File that cases run through, from its package's name on -> the beginning of its SHA-256."""
    ours = Path(next(iter(agentsys.__path__)))
    beside = find_spec("baselines")
    theirs = [Path(place) for place in (beside and beside.submodule_search_locations) or ()]
    found = dict.fromkeys(sorted(ours.glob("*.py")), ours.parent)
    for room in (*(ours / room for room in _CASE_PACKAGES), *theirs):
        files = (path for path in sorted(room.rglob("*")) if path.is_file() and path.name[0] != ".")
        found |= {path: room.parent for path in files if "__pycache__" not in path.parts}
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path, root in found.items()
    }


def store_code_state(store: Store) -> None:
    """Keep digests of the files that are about to run cases: the package's version changes more rarely than they.

    Raises:
        StoreError: If it cannot be written.
    """
    data = orjson.dumps(dict(hash_package_files()))
    store.keep_file(store.own / "code" / f"{hashlib.sha256(data).hexdigest()[:16]}.code", data)


def store_inferred_blocks(store: Store, found: Mapping[str, ThoughtBlock]) -> None:
    """Keep how the texts of some models, by name, begin with thoughts: a run that goes on reads them alike.

    Raises:
        StoreError: If it cannot be written.
    """
    for model, block in found.items():
        name = hashlib.sha256(model.encode()).hexdigest()[:16]
        data = to_json_bytes({"model": model, "strip_think": True, "thoughts": block.value})
        store.keep_file(store.own / INFERRED_FOLDER / f"{name}.inferred", data, again=True)


def load_inferred_blocks(store: Store) -> dict[str, ThoughtBlock]:
    """What was kept of that; a file that does not parse counts as none."""
    found = {}
    for path in (store.own / INFERRED_FOLDER).glob("*.inferred"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = orjson.loads(path.read_bytes())
            found[str(kept["model"])] = ThoughtBlock(kept["thoughts"])
    return found


def load_code_states(logdir: Path) -> list[dict[str, str]]:
    """The states of the code that cases of a log folder were run with; empty where none were kept."""
    found = []
    for path in sorted((logdir / OWN_FOLDER / "code").glob("*.code")):
        try:
            state = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(state, dict) and all(isinstance(digest, str) for digest in state.values()):
            found.append(state)
    return found


_RUN_CHOICES = {
    *("executor", "limit_per_suite", "user_tasks", "injection_tasks"),
    *("epochs", "logdir", "store", "budget", "preflight"),
}
"""Settings that say which cases are run, and how, and not what a case is."""
_URL_QUERY = re.compile(r"(?<=://)([^\s?#]*)[?#]\S*")


class Recipe(BaseModel):
    """The settings of a cell, and where what they point at lay."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Annotated[dict[str, Any], AfterValidator(replace_by_todays_paths)]
    """As `Settings` has them, less what only says which cases were run; credentials in addresses masked."""
    folder: str
    """Folder that relative paths in them start from."""
    code: dict[str, str] = {}
    """Source file of the user's, as `Settings.code` calls it -> its path."""


def store_recipe(store: Store, settings: Settings) -> None:
    """Keep a cell's recipe beside the records that name its hash; the newest one counts.

    An identity (`Settings.identity`) says whether two cells are the same; a recipe is enough to build one.

    Raises:
        StoreError: If it cannot be written.
    """
    plain = settings.model_dump(mode="json", exclude=_RUN_CHOICES)
    code = {}
    if settings.code:
        names = SourceCollector([*settings.nodes.values(), *settings.others.values()]).names
        code = {name: str(path) for path, name in names.items() if name in settings.code}
    shown = replace_texts_of_option(
        mask_credentials(plain), "base_url", lambda address: _URL_QUERY.sub(r"\1?***", address)
    )
    recipe = Recipe(settings=shown, folder=str(Path.cwd()), code=code)
    # Not sorted: the keys of replies depend on the order of a model's options.
    data = json.dumps(recipe.model_dump(), indent=2, default=str).encode()
    store.keep_file(store.own / "configs" / f"{settings.config_hash}.recipe", data, again=True)


def load_recipe(logdir: Path, config_hash: str) -> Recipe | None:
    """The recipe of a hash; None where none was kept, or none that can be read."""
    try:
        return Recipe.model_validate(
            json.loads((logdir / OWN_FOLDER / "configs" / f"{config_hash}.recipe").read_bytes())
        )
    except (OSError, ValueError, RecursionError):  # pydantic's errors are values' errors, too
        return None
