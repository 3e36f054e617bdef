"""`agentsys init --check`: check whether this installation is ready, and for which models.

Nothing here imports an SDK, and no key's value is ever read out.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from agentsys import __version__
from agentsys.base import config_catalog
from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import DISTRIBUTION, ConfigError, install_command
from agentsys.extensions import read_requirements, shipped_config_dir

if TYPE_CHECKING:
    from agentsys.records.schema import CaseRecord


class CheckResult(NamedTuple):
    """One thing that was looked at."""

    subject: str
    ok: bool | None
    """Whether it is as it should be; None where that was not checked. A key that is not set is not, though
    no run may need it."""
    detail: str
    """What was found and, where it helps, what to do."""


def collect_versions() -> dict[str, str | None]:
    """Versions of Python, of ourselves and of the packages results depend on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "agentsys": __version__}
    for extra, packages in read_requirements().items():
        versions = {package: _find_installed_version(package) for package in packages}
        # Of optional packages those that are here; of the others also the missing ones.
        found |= {package: told for package, told in versions.items() if told or extra is None}
    return found


_UNUSED_KEYS = {True: frozenset({"api_key_env"}), False: frozenset({"project_env", "location_env"})}
"""`vertexai` in a model's config -> keys of it that name variables of the other way to the model."""


def check_model(name: str, config_dirs: Sequence[Path] = (), *, ping: bool = False) -> CheckResult:
    """Check a model: the variables that its config names (`*_env`) and uses, and, if asked to, its server."""
    try:
        values = config_catalog.load_config("model", name, config_dirs)
    except ConfigError as error:
        return CheckResult(name, False, str(error))
    unset = [key for key, value in values.items() if value == "???"]
    if unset:
        return CheckResult(name, None, f"needs model.{unset[0]}=...; not checked")
    unused = _UNUSED_KEYS[bool(values["vertexai"])] if "vertexai" in values else frozenset[str]()
    wanted = [v for k, v in values.items() if k.endswith("_env") and k not in unused and isinstance(v, str)]
    states = {variable: bool(os.environ.get(variable)) for variable in wanted}
    told = ", ".join(f"{key} is {'set' if is_set else 'not set'}" for key, is_set in states.items())
    told = told or "needs no key"
    if not all(states.values()):
        return CheckResult(name, False, told)
    if values.get("simulated") and not values.get("base_url"):
        return CheckResult(name, True, told)
    if not ping:
        return CheckResult(name, None, f"{told}; its server was not checked: --ping asks it")
    return _ping_model(name, values, config_dirs)


def _ping_model(name: str, values: Mapping[str, Any], config_dirs: Sequence[Path]) -> CheckResult:
    """Ask a model one small question with one small tool, as `agentsys run` does before its first case."""
    from agentsys.models.build_model import build_stack
    from agentsys.runs.preflight import find_first_trouble

    try:
        stack = build_stack(
            values,
            cache_dir=None,
            load_model=lambda other: config_catalog.load_config("model", other, config_dirs),
        )
    except ConfigError as error:
        return CheckResult(name, False, str(error))
    trouble, odd, _ = find_first_trouble(stack.list_probe_models(), None)
    if trouble is not None or odd:
        return CheckResult(name, False, str(trouble or odd))
    return CheckResult(
        name,
        True,
        "answered, with the tool call it was asked for" if stack.list_probe_models() else "asks no server",
    )


def check_extras() -> list[CheckResult]:
    """Say which optional parts are installed, and how to install the others."""
    required = read_requirements()
    if not required:
        return [CheckResult(DISTRIBUTION, False, "is not installed as a package: pip install .")]
    found = []
    for name, packages in required.items():
        if name is None:  # what every installation has
            continue
        missing = [package for package in packages if _find_installed_version(package) is None]
        told = f"{', '.join(missing)} missing: {install_command(name)}" if missing else "installed"
        found.append(CheckResult(name, not missing, told))
    return found


def _find_installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_logdir(logdir: Path) -> CheckResult:
    """Check whether records could be written to `logdir`; makes nothing that stays."""
    nearest = next(folder for folder in (logdir.absolute(), *logdir.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        return CheckResult("logdir", False, f"{logdir}: {error.strerror}; give another with logdir=FOLDER")
    return CheckResult(
        "logdir", True, f"{logdir} {'is writable' if nearest == logdir.absolute() else 'can be made'}"
    )


def run_self_check() -> CheckResult:
    """Run one banking case on the simulated model, from config to stored record."""
    start = time.perf_counter()
    try:
        records = _run_one_case()
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what the user came to be told
        return CheckResult("self-check", False, f"{type(error).__name__}: {error}")
    if len(records) != 1 or records[0].status != "ok":
        kind = records[0].error_kind if records else "no case was run"
        return CheckResult(
            "self-check", False, f"a banking case on the simulated model ended as an error: {kind}"
        )
    if not records[0].utility:
        return CheckResult("self-check", False, "the simulated model did not solve a banking case")
    took = time.perf_counter() - start
    return CheckResult("self-check", True, f"a banking case ran on the simulated model in {took:.1f} s")


def _run_one_case() -> list[CaseRecord]:
    from agentsys.runs.run_session import prepare_session
    from agentsys.runs.run_totals import Listener

    records: list[CaseRecord] = []

    class Collector(Listener):
        def on_case_stored(self, record: CaseRecord) -> None:
            records.append(record)

    with tempfile.TemporaryDirectory() as folder:
        overrides = ["model=simulated", "defense=none", "executor.workers=1", "limit_per_suite=1"]
        session = prepare_session([*overrides, "benchmark.suites=[banking]", f"logdir='{folder}'"])
        session.execute(Collector())
    return records


def print_checks(config_dirs: Sequence[Path], *, ping: bool, as_json: bool) -> None:
    """Check versions, keys, extras and folders, and run one case. Exits with 1 if the case fails."""
    folder = shipped_config_dir()
    has_configs = (folder / "config.yaml").is_file()
    configs = str(folder) if has_configs else f"no config.yaml in {folder}: install agentsys again"
    versions, self_check = collect_versions(), run_self_check()
    names = config_catalog.list_config_names("model", config_dirs)
    sections = {
        "models": [check_model(name, config_dirs, ping=ping) for name in names],
        "extras": check_extras(),
        "folders": [CheckResult("configs", has_configs, configs), check_logdir(Path("results/runs"))],
    }
    if as_json:
        listed = {title: [one._asdict() for one in results] for title, results in sections.items()}
        print(json.dumps({"versions": versions, **listed, "self_check": self_check._asdict()}, indent=2))
    else:
        _print_section(
            "Versions",
            [CheckResult(n, told is not None, told or "not installed") for n, told in versions.items()],
        )
        for title, results in sections.items():
            _print_section(title.capitalize(), results)
        _print_section("Self-check", [self_check])
    if not self_check.ok:
        raise typer.Exit(1)


def _print_section(title: str, results: Sequence[CheckResult]) -> None:
    print_line(title)
    width = max((len(escape_to_line(one.subject)) for one in results), default=0)
    for one in results:
        subject, detail = escape_to_line(one.subject), escape_to_line(one.detail)
        print_line(f"  {_MARKS[one.ok]} {subject:<{width}}  {detail}", hang="      ")


_MARKS = {True: "+", False: "-", None: "?"}
