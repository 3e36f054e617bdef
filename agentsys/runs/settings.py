"""`Settings`: one resolved and validated combination of model, defense, attack and benchmark."""

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
    """List the options of a config that no case depends on, such as the folder in which a defense keeps files."""
    if group != "defense":
        return NOT_IDENTITY[group]
    from agentsys.runs.instantiate import load_class  # Brings AgentDojo along.

    defense = load_class("defense", node)
    return {*defense.keeps, *filter(None, [defense.folder_option(node)])}


RENAMED_SETTINGS = {"limit": "limit_per_suite"}
"""Old name -> new name of a setting: accepted in stored settings, refused with the new name on the command line."""


class ExecutorKind(StrEnum):
    """The place where cases are run."""

    THREADS = "threads"
    """In this process."""
    RAY = "ray"
    """On each node of a Ray cluster."""


class ExecutorSettings(BaseModel):
    """Settings for running cases in parallel. Not part of any case's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ExecutorKind = ExecutorKind.THREADS
    workers: int = Field(ge=1, le=1024)
    """Number of cases run at the same time (with Ray, on each node)."""
    address: str | None = None
    """Address of a running Ray cluster (`auto`: this machine's); None: a cluster is started for the run."""

    @model_validator(mode="after")
    def _refuse_address_without_cluster(self) -> ExecutorSettings:
        if self.kind is not ExecutorKind.RAY and self.address is not None:
            raise ValueError("only executor=ray has an address")
        return self


class CacheSettings(BaseModel):
    """Use of cached model replies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # YAML reads `off` as false.
    mode: Annotated[CacheMode, BeforeValidator(lambda given: CacheMode.OFF if given is False else given)] = (
        CacheMode.READ_WRITE
    )
    dir: Path | None = None
    """Folder of the cache, which runs may share; None: a folder in the log folder."""


class StoreMode(StrEnum):
    """Permissions of a new log folder; an existing one keeps its own."""

    PRIVATE = "private"
    """Only the owner has access."""
    GROUP = "group"
    """The group may read and write, too; everything created in it belongs to the group."""
    UMASK = "umask"
    """As the process's umask says; cached replies and the ledger are the owner's alone."""


class StoreSettings(BaseModel):
    """Settings of the log folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: StoreMode = StoreMode.PRIVATE
    compress: bool = False
    """Whether records are compressed (zstd), which AgentDojo's own tools do not read."""


class Settings(BaseModel):
    """Settings of one cell of a sweep, and those of its whole run."""

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
    """True if the scripted model plays the attacker that a preset names; the attack's label says so."""
    labels: dict[str, str]
    """Group -> its name in records: the YAML's name and the options that differ from that YAML."""
    executor: ExecutorSettings
    limit_per_suite: int | None = Field(default=None, ge=1)
    """Most cases of each suite in each cell; None: all."""
    user_tasks: tuple[str, ...] | None = None
    injection_tasks: tuple[str, ...] | None = None
    epochs: int = Field(default=1, ge=1)
    seed: int = 0
    logdir: Path
    store: StoreSettings = StoreSettings()
    budget: Budget = Budget()
    cache: CacheSettings = CacheSettings()
    preflight: bool = True
    """True: each model is sent one small question before the first case."""

    @model_validator(mode="before")
    @classmethod
    def _read_old_names(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {RENAMED_SETTINGS.get(key, key): value for key, value in values.items()}

    @field_validator("user_tasks", "injection_tasks", mode="before")
    @classmethod
    def _complete_task_ids(cls, value: object, info: Any) -> object:
        """Complete task ids given as numbers; one task may be given without a list."""
        prefix = info.field_name.removesuffix("s")
        if isinstance(value, (int, str)):  # A single task without brackets.
            value = [value]
        if not isinstance(value, (list, tuple)):
            return value
        return tuple(f"{prefix}_{v}" if isinstance(v, int) or str(v).isdigit() else v for v in value)

    @field_validator("benchmark")
    @classmethod
    def _normalize_benchmark(cls, benchmark: dict[str, Any]) -> dict[str, Any]:
        """Make one suite a list and expand fixes; without fixes the key is left out, so that old hashes stay valid."""
        values = dict(benchmark)
        if isinstance(values.get("suites"), str):
            values["suites"] = [values["suites"]]
        if fixes := expand_fixes(values.pop("fixes", ())):
            values["fixes"] = list(fixes)
        return values

    @field_validator("model", "defense")
    @classmethod
    def _drop_defaults(cls, node: dict[str, Any], info: Any) -> dict[str, Any]:
        """Drop newer options that have their defaults, so that hashes of older records stay valid."""
        if info.field_name == "model":
            kept = _drop_default_options(node, {"calls_per_turn": 1})
            # Bundles of version 0.1 have this option.
            return {key: value for key, value in kept.items() if (key, value) != ("reader", "literal")}
        defaults = {"tool_labels": None, "read_tools": False, "pin_tools": False, "worker_commands": 1}
        return dict(_drop_default_options(node, defaults))

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        """Model, defense, attack and benchmark, by group."""
        return {group: getattr(self, group) for group in NOT_IDENTITY}

    @property
    def nodes_of_identity(self) -> dict[str, dict[str, Any]]:
        """`nodes` without the options that no case depends on."""
        return {
            group: drop_keys(node, list_options_outside_identity(group, node))
            for group, node in self.nodes.items()
        }

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that a case's outcome depends on, as plain data, with registered names of our classes."""
        others = {name: drop_keys(node, NOT_IDENTITY["model"]) for name, node in self.others.items()}
        further = {"others": others, "files": self.files, "code": self.code, "packages": self.packages}
        given = {key: value for key, value in further.items() if value}
        if self.attack.get("attacker") and not (self.scripted_attacker or self.attack.get("artefact")):
            # Earlier versions let the scripted model play named attackers too; those results have another identity.
            given |= {"attacker": "asked"} if is_scripted_model(self.model) else {}
        values = {**self.nodes_of_identity, **given}
        values = mask_credentials(replace_texts_of_option(values, "base_url", strip_address))
        return dict(
            replace_by_registered_names({**values, "seed": self.seed, "versions": dict(read_code_versions())})
        )

    @property
    def config_hash(self) -> str:
        """Hash of `identity`, 16 hexadecimal digits; a stored case counts as finished only under the same hash."""
        text = json.dumps(self.identity, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_scripted_model(model: Mapping[str, Any]) -> bool:
    """True if a model's config is that of the worst-case scripted agent."""
    return find_registered_class(model.get("_target_")).name == "agentsys:model.simulated"


def _drop_default_options(value: Any, defaults: Mapping[str, Any]) -> Any:
    """Drop these options from a config, and from nested ones, if they have their default values."""
    if isinstance(value, list):
        return [_drop_default_options(item, defaults) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: item for key, item in value.items() if key not in defaults or item is not defaults[key]}
    return {key: _drop_default_options(item, defaults) for key, item in kept.items()}


def drop_keys(node: Mapping[str, Any], hidden: set[str]) -> dict[str, Any]:
    """Copy a config node without some of its top-level keys."""
    return {key: value for key, value in node.items() if key not in hidden}


def strip_address(url: str) -> str:
    """Strip user, password, query and fragment from a server's address, which may then be stored and shown."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url.lstrip('/')}")
    except ValueError:
        return "(not an address)"
    scheme = f"{parts.scheme}://" if parts.scheme else ""
    return f"{scheme}{parts.netloc.rpartition('@')[2].lower()}{parts.path}".rstrip("/")


def refuse_old_name(key: str, value: object) -> None:
    """Refuse a setting's old name.

    Raises:
        ConfigError: If it is one; the message gives the new name.
    """
    if new := RENAMED_SETTINGS.get(key):
        raise ConfigError(f"{key} is {new} now: {new}={value}")


@lru_cache(maxsize=1)
def read_code_versions() -> Mapping[str, str]:
    """Package -> version, of the packages whose code runs and scores a case."""
    return {"agentsys": agentsys.__version__, "agentdojo": version("agentdojo")}


def validate_settings(values: Mapping[str, Any]) -> Settings:
    """Validate composed values.

    Raises:
        ConfigError: If a value is invalid; the message names the key, the value and the rule.
    """
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"Setting '{where}' = {first.get('input')!r}: {first['msg']}.") from None
