"""`Store`: a log folder. One file per case, written atomically, in AgentDojo's own layout and JSON.

It also keeps what is needed to repeat the cases: plans, resolved configs, recipes, digests of the code.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

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
from agentsys.base.packed_json import pack_json, read_json_bytes
from agentsys.errors import ConfigError
from agentsys.extensions import OUR_PACKAGES
from agentsys.models.secrets import mask_credentials
from agentsys.models.thought_text import ThoughtBlock
from agentsys.records.case import Case, UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.old_shards import unpack_shards
from agentsys.records.schema import CaseRecord
from agentsys.records.stored_file import read_case_file
from agentsys.runs.settings import Settings, StoreMode
from agentsys.runs.source_files import SourceCollector

OWN_FOLDER = ".agentsys"
"""Subfolder of the log folder for everything but records: resolved configs, the reply cache, privileges."""
REPLIES_FOLDER = "cache"
"""Subfolder of OWN_FOLDER for models' replies, unless `cache.dir` names another."""

INFERRED_FOLDER = "inferred"
"""Subfolder of OWN_FOLDER for facts that the preflight question found about each model; not part of an identity."""

_log = logging.getLogger(__name__)


class RecordStatus(NamedTuple):
    """Status of a case's file, for the plan."""

    status: str
    """`missing`, `corrupt`, `ok` or `error`."""
    config_hash: str = ""


class StoreError(ConfigError):
    """The log folder cannot be written; finished cases stay."""


_FOLDER_MODES = {StoreMode.PRIVATE: 0o700, StoreMode.GROUP: 0o2770}


class Store:
    """The log folder of some runs.

    Args:
        root: The folder; it is created if it does not exist.
        mode: Permissions of a folder that is created.
        compress: Whether records are written compressed; they are read either way.

    Raises:
        StoreError: If it cannot be created or written.
        ConfigError: If it holds records in shards that cannot be unpacked into files.
    """

    def __init__(self, root: Path, mode: StoreMode = StoreMode.PRIVATE, *, compress: bool = False) -> None:
        self.root = root
        self._compress = compress
        self.own = root / OWN_FOLDER
        self.marker: Path | None = None
        """A file of the running process; if it is missing, the folder was removed during the run."""
        self.rows: dict[str, CaseRow] | None = None
        """Path -> row of every case that this process stores, for its table; None: the table reads the files."""
        self._versions_when_planned: dict[str, tuple[int, int, int]] = {}
        """Key -> (time, inode, size) of existing unfinished records; missing records take no memory."""
        try:
            if not root.exists():
                make_folder(root)
                if mode in _FOLDER_MODES:
                    root.chmod(_FOLDER_MODES[mode])
            probe = self.own / "probe"
            write_atomically(probe, b"", durable=False)
            probe.unlink(missing_ok=True)  # Another process may have been faster.
        except OSError as error:
            raise StoreError(
                f"Cannot write to {root}: {error.strerror}. Give another folder: logdir=..."
            ) from None
        unpack_shards(str(root))

    @property
    def replies(self) -> Path:
        """Folder of cached replies, unless `cache.dir` names another."""
        return self.own / REPLIES_FOLDER

    def read_case_status(self, case: Case) -> RecordStatus:
        """Read a case's status and, if it is not finished, remember its file's version."""
        key = case.key
        version = self._stat_version(key)
        if version is None:
            return RecordStatus("missing")
        status = self.read_file_status(self.root / key)
        if status.status != "ok":
            self._versions_when_planned[key] = version
        return status

    def has_changed_since_planned(self, case: Case) -> bool:
        """True if a process has stored the case since this one saw that it was not finished."""
        now = self._stat_version(case.key)
        return now is not None and now != self._versions_when_planned.get(case.key)

    def check_there(self) -> None:
        """Check that the log folder was not removed during the run.

        Raises:
            StoreError: If it was removed, or may no longer be looked into.
        """
        try:
            removed = self.marker is not None and not self.marker.exists()
        except OSError as error:
            raise self.make_write_error(self.root, error) from None
        if removed:
            raise StoreError(
                f"{self.root} was removed while this run was writing to it; what it held is gone."
            )

    def make_write_error(self, path: Path, error: OSError) -> StoreError:
        """Build the error for a file that cannot be written."""
        return StoreError(
            f"Cannot write {path}: {error.strerror}. Finished cases are safe; make room, or give another "
            "logdir=...."
        )

    def read_file_status(self, path: Path) -> RecordStatus:
        """Read the status of a record's file, a case's or an attempt's."""
        try:
            block = orjson.loads(read_json_bytes(path))["agentsys"]
            return RecordStatus(str(block["status"]), str(block["config_hash"]))
        except FileNotFoundError:
            return RecordStatus("missing")
        except (ValueError, KeyError, TypeError, OSError):
            return RecordStatus("corrupt")

    def write(self, record: CaseRecord, agentdojo: Mapping[str, Any]) -> Path:
        """Store a record atomically: the file holds either the old record or the whole new one.

        Raises:
            StoreError: If the disk is full, or the folder cannot be written or was removed.
        """
        self.check_there()
        attempt = record.attempt
        path = self.root / (
            record.case.key if attempt is None else record.case.make_attempt_key(attempt.number)
        )
        block = dict(record)
        block["spans"] = block.pop("spans")  # The longest part last, for people who read the file.
        data = to_json_bytes({**agentdojo, "agentsys": block}, indent=True)
        try:
            if path.exists() and self.read_file_status(path).status == "corrupt":
                aside = path.with_suffix(".json.corrupt")
                path.replace(aside)
                message = "%s did not parse; it was kept as %s and the case was run again"
                _log.warning(message, path, aside.name)
            write_atomically(path, pack_json(data) if self._compress else data)
        except OSError as error:
            raise self.make_write_error(path, error) from None
        if self.rows is not None and attempt is None:
            with suppress(UnreadableRecord):  # The table says so, too.
                self.rows[str(path)] = cast(CaseRow, read_case_file(str(path), data))
        return path

    def load_record(self, case: Case) -> tuple[CaseRecord, str | None] | None:
        """Load the stored record of a case, and its error; None if there is no readable record."""
        try:
            fields = orjson.loads(read_json_bytes(self.root / case.key))
            return CaseRecord.model_validate(fields["agentsys"]), fields.get("error")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def store_config(self, config_hash: str, identity: Mapping[str, Any]) -> None:
        """Store a resolved config under its hash, which records name."""
        data = json.dumps(identity, indent=2, sort_keys=True, default=str).encode()
        self.keep_file(self.own / "configs" / f"{config_hash}.config", data)

    def keep_file(self, path: Path, data: bytes, *, again: bool = False) -> None:
        """Write a file that does not exist yet; with `again`, also replace one that differs.

        Raises:
            StoreError: If it cannot be written.
        """
        try:
            if not path.exists() or (again and path.read_bytes() != data):
                write_atomically(path, data)
        except OSError as error:
            raise self.make_write_error(path, error) from None

    def store_inferred_blocks(self, blocks: Mapping[str, ThoughtBlock]) -> None:
        """Store how replies of models (name -> block) begin with thoughts, so that a resumed run parses them alike.

        Raises:
            StoreError: If it cannot be written.
        """
        for model, block in blocks.items():
            name = hashlib.sha256(model.encode()).hexdigest()[:16]
            data = to_json_bytes({"model": model, "strip_think": True, "thoughts": block.value})
            self.keep_file(self.own / INFERRED_FOLDER / f"{name}.inferred", data, again=True)

    def load_inferred_blocks(self) -> dict[str, ThoughtBlock]:
        """Load what `store_inferred_blocks` kept; files that do not parse are skipped."""
        blocks = {}
        for path in (self.own / INFERRED_FOLDER).glob("*.inferred"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                kept = orjson.loads(path.read_bytes())
                blocks[str(kept["model"])] = ThoughtBlock(kept["thoughts"])
        return blocks

    def load_config_of_hash(self, config_hash: str) -> dict[str, Any] | None:
        """Load the resolved config of a hash, with registered names of our classes; None if it was not kept."""
        try:
            config = json.loads((self.own / "configs" / f"{config_hash}.config").read_bytes())
        except (OSError, ValueError):
            return None
        return replace_by_registered_names(config) if isinstance(config, dict) else None

    def _stat_version(self, key: str) -> tuple[int, int, int] | None:
        try:
            stat = (self.root / key).stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


_CASE_PACKAGES = ("attacks", "base", "benchmarks", "defense", "models", "records", "runs", "simulated")
"""The packages of `agentsys` whose code can change a case's result."""


@lru_cache(maxsize=1)
def hash_package_files() -> Mapping[str, str]:
    """Hash the code that runs cases: path from the package's name on -> first 16 digits of the SHA-256."""
    ours = Path(next(iter(agentsys.__path__)))
    beside = [spec for name in OUR_PACKAGES[1:] if (spec := find_spec(name)) is not None]
    theirs = [Path(folder) for spec in beside for folder in spec.submodule_search_locations or ()]
    roots = dict.fromkeys(sorted(ours.glob("*.py")), ours.parent)
    for room in (*(ours / room for room in _CASE_PACKAGES), *theirs):
        files = (path for path in sorted(room.rglob("*")) if path.is_file() and path.name[0] != ".")
        roots |= {path: room.parent for path in files if not {"__pycache__", "tests"} & {*path.parts}}
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path, root in roots.items()
    }


def store_code_state(store: Store) -> None:
    """Store digests of the code that is about to run cases; it changes more often than the package's version.

    Raises:
        StoreError: If it cannot be written.
    """
    data = orjson.dumps(dict(hash_package_files()))
    store.keep_file(store.own / "code" / f"{hashlib.sha256(data).hexdigest()[:16]}.code", data)


def load_code_states(logdir: Path) -> list[dict[str, str]]:
    """Load the digests of the code that a log folder's cases were run with; empty if none were kept."""
    states = []
    for path in sorted((logdir / OWN_FOLDER / "code").glob("*.code")):
        try:
            state = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(state, dict) and all(isinstance(digest, str) for digest in state.values()):
            states.append(state)
    return states


_RUN_CHOICES = {
    *("executor", "limit_per_suite", "user_tasks", "injection_tasks"),
    *("epochs", "logdir", "store", "budget", "preflight"),
}
"""Settings that choose which cases are run, and how, without changing a case."""
_URL_QUERY = re.compile(r"(?<=://)([^\s?#]*)[?#]\S*")


class Recipe(BaseModel):
    """Settings of a cell, and the locations of the files that they refer to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Annotated[dict[str, Any], AfterValidator(replace_by_todays_paths)]
    """As in `Settings`, without _RUN_CHOICES; credentials in addresses are masked."""
    folder: str
    """Base folder of relative paths in the settings."""
    code: dict[str, str] = {}
    """User's source file, by its name in `Settings.code` -> its path."""


def store_recipe(store: Store, settings: Settings) -> None:
    """Store a cell's recipe under its config hash; the newest one counts.

    An identity (`Settings.identity`) tells if two cells are the same; a recipe is enough to build the cell.

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
    # Not sorted: cache keys of replies depend on the order of a model's options.
    data = json.dumps(recipe.model_dump(), indent=2, default=str).encode()
    store.keep_file(store.own / "configs" / f"{settings.config_hash}.recipe", data, again=True)


def load_recipe(logdir: Path, config_hash: str) -> Recipe | None:
    """Load the recipe of a hash; None if there is no readable one."""
    try:
        return Recipe.model_validate(
            json.loads((logdir / OWN_FOLDER / "configs" / f"{config_hash}.recipe").read_bytes())
        )
    except (OSError, ValueError, RecursionError):  # pydantic's ValidationError is a ValueError.
        return None
