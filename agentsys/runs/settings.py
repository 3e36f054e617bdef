"""`Settings`: one resolved combination of model, defense, attack and benchmark, checked at the border."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agentsys.benchmarks.fixes.catalog import expanded
from agentsys.errors import ConfigError

NOT_IDENTITY = {
    "model": {
        "api_key_env",
        "base_url",
        "cache",
        "context_tokens",
        "location_env",
        "max_reply_bytes",
        "price",
        "project_env",
        "retry",
        "send_role",
        "simulated",
        "strict",
        "timeout_s",
        "traces",
        "pipeline",
    },
    "defense": {"privileges_dir"},
    "attack": {"file", "artefact"},
    "benchmark": {"suites", "modules", "tasks", "attack_tools", "data"},
}
"""Per group, the options that say how something is reached, not what is measured: changing one
neither renames a cell nor makes its finished cases stale. Of an attack's file the content counts
(`Settings.files`), not where it lies."""


class Executor(BaseModel):
    """How cases are run side by side."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workers: int = Field(ge=1, le=1024)
    """Cases under way at once."""


class Settings(BaseModel):
    """One cell of a sweep, with the choices of the run it belongs to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: dict[str, Any]
    defense: dict[str, Any]
    attack: dict[str, Any]
    benchmark: dict[str, Any]
    files: dict[str, str] = {}
    """Option -> hash of the content of the file it names; see `agentsys.runs.named_files`."""
    labels: dict[str, str]
    """Group -> the name it has in records: the YAML's name, plus the options changed from that YAML."""
    executor: Executor
    limit: int | None = Field(default=None, ge=1)
    user_tasks: tuple[str, ...] | None = None
    injection_tasks: tuple[str, ...] | None = None
    epochs: int = Field(default=1, ge=1)
    seed: int = 0
    logdir: Path

    @field_validator("user_tasks", "injection_tasks", mode="before")
    @classmethod
    def _numbers_name_tasks(cls, value: object, info: Any) -> object:
        prefix = info.field_name.removesuffix("s")
        if not isinstance(value, (list, tuple)):
            return value
        return tuple(f"{prefix}_{v}" if isinstance(v, int) or str(v).isdigit() else v for v in value)

    @field_validator("benchmark")
    @classmethod
    def _fixes_written_out(cls, benchmark: dict[str, Any]) -> dict[str, Any]:
        """`all` as the list it stands for; no entry where there are none, as before there were fixes."""
        fixes = expanded(benchmark["fixes"]) if "fixes" in benchmark else ()
        rest = {key: value for key, value in benchmark.items() if key != "fixes"}
        return {**rest, "fixes": list(fixes)} if fixes else rest

    @property
    def identity(self) -> dict[str, Any]:
        """Everything a case's outcome depends on, as plain data."""
        groups = {group: without(getattr(self, group), hidden) for group, hidden in NOT_IDENTITY.items()}
        files = {"files": self.files} if self.files else {}
        return {**groups, **files, "seed": self.seed}

    @property
    def config_hash(self) -> str:
        """Hash of `identity`; a finished case counts as finished only under the same one."""
        text = json.dumps(self.identity, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def without(node: Mapping[str, Any], hidden: set[str]) -> dict[str, Any]:
    """A config node less some of its top-level keys."""
    return {key: value for key, value in node.items() if key not in hidden}


def checked_settings(values: Mapping[str, Any]) -> Settings:
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
