"""`Settings`: one resolved combination of model, defense, attack and benchmark, checked at the border."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

import agentsys
from agentsys.base.object_import import (
    find_registered_class,
    replace_by_registered_names,
    replace_texts_of_option,
)
from agentsys.benchmarks.fixes.fix_catalog import expand_fixes
from agentsys.errors import ConfigError
from agentsys.models.budget import Budget
from agentsys.models.secrets import mask_credentials
from agentsys.models.wrappers.reply_cache import CacheMode
from agentsys.records.row_settings import NOT_IDENTITY


def list_options_outside_identity(group: str, node: Mapping[str, Any]) -> set[str]:
    """The options of a config that no case depends on; of a defense also where it keeps its files."""
    from agentsys.runs.instantiate import find_folder_option, find_kept_folders

    if group != "defense":
        return NOT_IDENTITY[group]
    return {*find_kept_folders(node), *filter(None, [find_folder_option(node)])}


RENAMED_SETTINGS = {"limit": "limit_per_suite"}
"""Settings of earlier versions -> their names now: stored ones are read so, typed ones are refused with the mend."""


class ExecutorKind(StrEnum):
    """Where cases are run."""

    THREADS = "threads"
    """In this process."""
    RAY = "ray"
    """On each node of a Ray cluster."""


class ExecutorSettings(BaseModel):
    """How cases are run side by side. No part of any case's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ExecutorKind = ExecutorKind.THREADS
    workers: int = Field(ge=1, le=1024)
    """Cases under way at once; of Ray's nodes: on each of them."""
    address: str | None = None
    """Of a Ray cluster that is up (`auto`: the one of this machine); None: one is started for the run."""

    @model_validator(mode="after")
    def _refuse_address_without_cluster(self) -> ExecutorSettings:
        if self.kind is not ExecutorKind.RAY and self.address is not None:
            raise ValueError("only executor=ray has an address")
        return self


class CacheSettings(BaseModel):
    """What is done with replies that were kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # YAML reads `off` as false.
    mode: Annotated[CacheMode, BeforeValidator(lambda given: CacheMode.OFF if given is False else given)] = (
        CacheMode.READ_WRITE
    )
    dir: Path | None = None
    """Folder of the replies, which runs may share; None: one in the log folder."""


class StoreMode(StrEnum):
    """Who may look into a log folder that is made; one that is there keeps its mode."""

    PRIVATE = "private"
    """Its owner alone."""
    GROUP = "group"
    """Its group too, and write there; all that is made in it is the group's."""
    UMASK = "umask"
    """Whoever the process's umask lets in, of replies and of what was spent its owner alone."""


class StoreSettings(BaseModel):
    """How the log folder is kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: StoreMode = StoreMode.PRIVATE


class Settings(BaseModel):
    """One cell of a sweep, with the choices of the run it belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: dict[str, Any]
    defense: dict[str, Any]
    attack: dict[str, Any]
    benchmark: dict[str, Any]
    files: dict[str, str] = {}
    """Option -> hash of the content it names; see `agentsys.runs.references`."""
    code: dict[str, str] = {}
    """Source file outside this package -> hash of its content; see `agentsys.runs.references`."""
    packages: dict[str, str] = {}
    """Installed package that the user's code imports -> its version and the hash of its files; see
    `agentsys.runs.source_files`."""
    others: dict[str, dict[str, Any]] = {}
    """Name -> YAML of each further model that plays a role."""
    scripted_attacker: bool = False
    """Whether the scripted model plays an attacker that a preset names; the attack's label says so."""
    labels: dict[str, str]
    """Group -> the name it has in records: the YAML's name, plus the options changed from that YAML."""
    executor: ExecutorSettings
    limit_per_suite: int | None = Field(default=None, ge=1)
    """Cases of each suite in each cell; None: all."""
    user_tasks: tuple[str, ...] | None = None
    injection_tasks: tuple[str, ...] | None = None
    epochs: int = Field(default=1, ge=1)
    seed: int = 0
    logdir: Path
    store: StoreSettings = StoreSettings()
    budget: Budget = Budget()
    cache: CacheSettings = CacheSettings()
    preflight: bool = True
    """Whether each model is asked one small question before the first case."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {RENAMED_SETTINGS.get(key, key): value for key, value in values.items()}

    @field_validator("user_tasks", "injection_tasks", mode="before")
    @classmethod
    def _write_task_ids_out(cls, value: object, info: Any) -> object:
        """The ids of tasks that were given as numbers, as an id, or as several of these."""
        prefix = info.field_name.removesuffix("s")
        if isinstance(value, (int, str)):  # one alone, without brackets
            value = [value]
        if not isinstance(value, (list, tuple)):
            return value
        return tuple(f"{prefix}_{v}" if isinstance(v, int) or str(v).isdigit() else v for v in value)

    @field_validator("benchmark")
    @classmethod
    def _normalize_benchmark(cls, benchmark: dict[str, Any]) -> dict[str, Any]:
        """Make one suite a list and write fixes out; without fixes there is no key, as hashes before them had none."""
        values = dict(benchmark)
        if isinstance(values.get("suites"), str):
            values["suites"] = [values["suites"]]
        if fixes := expand_fixes(values.pop("fixes", ())):
            values["fixes"] = list(fixes)
        return values

    @field_validator("model", "defense")
    @classmethod
    def _drop_defaults(cls, node: dict[str, Any], info: Any) -> dict[str, Any]:
        """Leave out newer options at their defaults, so that hashes stay those of records from before them."""
        if info.field_name == "model":
            # Bundles of version 0.1 have this option.
            return {key: value for key, value in node.items() if (key, value) != ("reader", "literal")}
        defaults = {"tool_labels": None, "read_tools": False, "pin_tools": False, "worker_commands": 1}
        return dict(_drop_default_options(node, defaults))

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """Model, defense, attack and benchmark, by group."""
        return {group: getattr(self, group) for group in NOT_IDENTITY}

    @property
    def nodes_of_identity(self) -> dict[str, dict[str, Any]]:
        """The same nodes without the options that no case depends on."""
        return {
            group: drop_keys(node, list_options_outside_identity(group, node))
            for group, node in self.nodes.items()
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything a case's outcome depends on, as plain data; our classes by their registered names."""
        others = {name: drop_keys(node, NOT_IDENTITY["model"]) for name, node in self.others.items()}
        further = {"others": others, "files": self.files, "code": self.code, "packages": self.packages}
        given = {key: value for key, value in further.items() if value}
        if self.attack.get("attacker") and not (self.scripted_attacker or self.attack.get("artefact")):
            # Once the scripted model played these too: what it found is not what the one named would.
            given |= {"attacker": "asked"} if is_scripted_model(self.model) else {}
        values = {**self.nodes_of_identity, **given}
        values = mask_credentials(replace_texts_of_option(values, "base_url", strip_address))
        return dict(
            replace_by_registered_names({**values, "seed": self.seed, "versions": dict(read_code_versions())})
        )

    @property
    def config_hash(self) -> str:
        """Hash of `identity`; a finished case counts as finished only under the same one."""
        text = json.dumps(self.identity, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_scripted_model(model: Mapping[str, Any]) -> bool:
    """Whether a model's config is the worst-case scripted agent's."""
    return find_registered_class(model.get("_target_")).name == "agentsys:model.simulated"


def _drop_default_options(value: Any, defaults: Mapping[str, Any]) -> Any:
    """A config without these options, in it or in what it holds, where they have these values."""
    if isinstance(value, list):
        return [_drop_default_options(one, defaults) for one in value]
    if not isinstance(value, dict):
        return value
    kept = {key: one for key, one in value.items() if key not in defaults or one is not defaults[key]}
    return {key: _drop_default_options(one, defaults) for key, one in kept.items()}


def drop_keys(node: Mapping[str, Any], hidden: set[str]) -> dict[str, Any]:
    """A config node less some of its top-level keys."""
    return {key: value for key, value in node.items() if key not in hidden}


def strip_address(url: str) -> str:
    """A server's address without user, password, query and fragment: what may be kept and shown of it."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url.lstrip('/')}")
    except ValueError:
        return "(not an address)"
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    return f"{scheme}{parts.netloc.rpartition('@')[2].lower()}{parts.path}".rstrip("/")


def refuse_old_name(key: str, value: object) -> None:
    """Refuse a setting that has another name now.

    Raises:
        ConfigError: With what to write instead.
    """
    if new := RENAMED_SETTINGS.get(key):
        raise ConfigError(f"{key} is {new} now: {new}={value}")


@lru_cache(maxsize=1)
def read_code_versions() -> Mapping[str, str]:
    """Versions of the packages whose code runs and scores a case."""
    return {"agentsys": agentsys.__version__, "agentdojo": version("agentdojo")}


def validate_settings(values: Mapping[str, Any]) -> Settings:
    """Validate composed values.

    Raises:
        ConfigError: Naming the key, what it holds and what it should hold.
    """
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Setting '{where}' = {first.get('input')!r}: {first['msg']}.") from None
