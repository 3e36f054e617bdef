"""Checks of `agentsys doctor`. Nothing here imports an SDK, and no key's value is ever read out."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentsys import __version__, catalog
from agentsys.config_dir import shipped_config_dir
from agentsys.errors import ConfigError
from agentsys.extras import DISTRIBUTION, install

if TYPE_CHECKING:
    from agentsys.records.schema import CaseRecord

_NOT_FOR_USERS = frozenset({"dev"})
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    """What was looked at."""
    ok: bool | None
    """Whether it is as it should be; None where that was not checked. A key that is not set is not, though
    no run may need it."""
    detail: str
    """What was found and, where it helps, what to do."""


@dataclass(frozen=True)
class CheckReport:
    """Everything the doctor found."""

    versions: dict[str, str | None]
    """Package -> version; None where it is not installed."""
    models: list[Finding]
    """Per model config, whether the variables it names are set."""
    extras: list[Finding]
    folders: list[Finding]
    self_check: Finding


def examine(logdir: Path, config_dirs: Sequence[Path] = (), *, ping: bool = False) -> CheckReport:
    """Look at everything; takes as long as one case takes to run (a few seconds, mostly imports).

    Args:
        logdir: Folder that records would go to.
        config_dirs: The user's own config folders.
        ping: Whether each model that has its key is asked one small question, which may cost something.
    """
    return CheckReport(
        versions=versions(),
        models=[model_found(name, config_dirs, ping=ping) for name in catalog.known("model", config_dirs)],
        extras=extras(),
        folders=[configs_found(), writable(logdir)],
        self_check=self_check(),
    )


def versions() -> dict[str, str | None]:
    """Versions of Python, of ourselves and of the packages results depend on."""
    found = {"python": platform.python_version(), "agentsys": __version__}
    required = _requirements()
    needed = [package for extra in required if extra is None for package in required[extra]]
    optional = [package for extra in required if extra for package in required[extra] if _installed(package)]
    return found | {name: _installed(name) for name in dict.fromkeys([*needed, *optional])}


def _requirements() -> dict[str | None, list[str]]:
    """Extra -> packages it asks for; under None those that are always needed, first.

    Empty where agentsys is not installed as a package.
    """
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return {}
    extras = [name for name in metadata.get_all("Provides-Extra") or [] if name not in _NOT_FOR_USERS]
    found: dict[str | None, list[str]] = {None: [], **{name: [] for name in extras}}
    for line in metadata.get_all("Requires-Dist") or []:
        extra = _EXTRA.search(line)
        package = _REQUIREMENT_NAME.match(line)
        group = extra[1] if extra else None
        if package and group in found:
            found[group].append(package.group())
    return found


_UNUSED = {True: frozenset({"api_key_env"}), False: frozenset({"project_env", "location_env"})}
"""`vertexai` in a model's config -> keys of it that name variables of the other way to the model."""


def model_found(name: str, config_dirs: Sequence[Path] = (), *, ping: bool = False) -> Finding:
    """Check a model: the variables that its config names (`*_env`) and uses, and, if asked to, its server."""
    try:
        values = catalog.node("model", name, config_dirs)
    except ConfigError as error:
        return Finding(name, False, str(error))
    unset = [key for key, value in values.items() if value == "???"]
    if unset:
        return Finding(name, None, f"needs model.{unset[0]}=...; not checked")
    unused = _UNUSED[bool(values["vertexai"])] if "vertexai" in values else frozenset[str]()
    wanted = [v for k, v in values.items() if k.endswith("_env") and k not in unused and isinstance(v, str)]
    states = {variable: bool(os.environ.get(variable)) for variable in wanted}
    told = ", ".join(f"{key} is {'set' if is_set else 'not set'}" for key, is_set in states.items())
    told = told or "needs no key"
    if not all(states.values()):
        return Finding(name, False, told)
    if values.get("simulated") and not values.get("base_url"):
        return Finding(name, True, told)
    if not ping:
        return Finding(name, None, f"{told}; its server was not checked: --ping asks it")
    return _pinged(name, values, config_dirs)


def _pinged(name: str, values: Mapping[str, Any], config_dirs: Sequence[Path]) -> Finding:
    """Ask a model one small question with one small tool, as `agentsys run` does before its first case."""
    from agentsys.models.build import build_stack
    from agentsys.runs.preflight import first_trouble

    try:
        stack = build_stack(
            values, cache_dir=None, load_model=lambda other: catalog.node("model", other, config_dirs)
        )
    except ConfigError as error:
        return Finding(name, False, str(error))
    trouble, odd = first_trouble(stack.servers(), None)
    if trouble is not None or odd:
        return Finding(name, False, str(trouble or odd))
    return Finding(
        name, True, "answered, with the tool call it was asked for" if stack.servers() else "asks no server"
    )


def extras() -> list[Finding]:
    """Say which optional parts are installed, and how to install the others."""
    required = _requirements()
    if not required:
        return [Finding(DISTRIBUTION, False, "is not installed as a package: pip install .")]
    return [_extra(name, packages) for name, packages in required.items() if name is not None]


def _extra(name: str, packages: Sequence[str]) -> Finding:
    missing = [package for package in packages if _installed(package) is None]
    if missing:
        return Finding(name, False, f"{', '.join(missing)} missing: {install(name)}")
    return Finding(name, True, "installed")


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def configs_found() -> Finding:
    """Check whether the shipped configs are where they should be."""
    folder = shipped_config_dir()
    if (folder / "config.yaml").is_file():
        return Finding("configs", True, str(folder))
    return Finding("configs", False, f"no config.yaml in {folder}: install agentsys again")


def writable(logdir: Path) -> Finding:
    """Check whether records could be written to `logdir`; makes nothing that stays."""
    nearest = next(folder for folder in (logdir.absolute(), *logdir.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return Finding("logdir", False, f"{logdir}: {error.strerror}; give another with logdir=FOLDER")
    return Finding(
        "logdir", True, f"{logdir} {'is writable' if nearest == logdir.absolute() else 'can be made'}"
    )


def self_check() -> Finding:
    """Run one banking case on the simulated model, from config to stored record."""
    start = time.perf_counter()
    try:
        records = _one_case()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what the user came to be told
        return Finding("self-check", False, f"{type(error).__name__}: {error}")
    if len(records) != 1 or records[0].status != "ok":
        kind = records[0].error_kind if records else "no case was run"
        return Finding(
            "self-check", False, f"a banking case on the simulated model ended as an error: {kind}"
        )
    if not records[0].utility:
        return Finding("self-check", False, "the simulated model did not solve a banking case")
    took = time.perf_counter() - start
    return Finding("self-check", True, f"a banking case ran on the simulated model in {took:.1f} s")


def _one_case() -> list[CaseRecord]:
    from agentsys.runs.executors.outcome import Listener
    from agentsys.runs.session import prepare

    records: list[CaseRecord] = []

    class Collector(Listener):
        def finished(self, record: CaseRecord) -> None:
            records.append(record)

    with tempfile.TemporaryDirectory() as folder:
        overrides = ["model=simulated", "defense=none", "attack=none", "executor.workers=1", "limit=1"]
        session = prepare([*overrides, "benchmark.suites=[banking]", f"logdir='{folder}'"])
        session.execute(Collector())
    return records
