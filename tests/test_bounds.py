"""The lower bounds in pyproject.toml are claims: what they allow is installed here, and has to run.

The lowest versions on the oldest Python and the newest ones on the newest, each in an environment of its
own, from the package index.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/records/test_load_runs.py",
    "tests/analysis/test_figures.py",
    "tests/baselines/test_melon_embedders.py",
    "tests/runs/test_store.py",
    "tests/runs/test_compose.py",
)
"""What touches the packages whose behaviour changes between versions: arrays, frames, figures, configs."""


def declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(line) for line in project["dependencies"]]


def lowest(requirement: Requirement) -> str:
    (bound,) = [spec.version for spec in requirement.specifier if spec.operator in {">=", "=="}]
    return f"{requirement.name}=={bound}"


def test_every_dependency_has_a_lower_bound() -> None:
    assert all(lowest(requirement) for requirement in declared())


def python(version: str) -> str:
    """A Python of this version on this machine."""
    candidates = [shutil.which(f"python{version}"), *_pyenv(version)]
    if f"{sys.version_info.major}.{sys.version_info.minor}" == version:
        candidates.insert(0, sys.executable)
    for found in candidates:
        if found and _says([found, "--version"]).startswith(f"Python {version}"):
            return found
    pytest.skip(f"no Python {version} here")


def _pyenv(version: str) -> list[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return [str(path / "bin" / "python") for path in sorted((root / "versions").glob(f"{version}.*"))]


def _says(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False).stdout


def run(command: Sequence[str | Path], folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def environment(folder: Path, version: str, requirements: Sequence[str]) -> Path:
    """The Python of a fresh environment with these packages; skips where the index is out of reach."""
    made = run([python(version), "-m", "venv", folder / "venv"], folder, 300)
    assert made.returncode == 0, made.stderr
    own = folder / "venv" / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    # An index that is out of reach is tried for minutes else.
    try:
        done = run(
            [*pip, "--retries", "1", "--timeout", "10", *requirements, "pytest>=9", "hypothesis"],  # type: ignore[list-item]
            folder,
            300,  # type: ignore[list-item]
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the package index is too slow")
    if any(sign in done.stderr for sign in ("NewConnectionError", "Name or service", "ConnectTimeout")):
        pytest.skip("the package index is out of reach")
    assert done.returncode == 0, done.stderr[-2000:]
    return own


@pytest.mark.slow
@pytest.mark.parametrize(("version", "which"), [("3.11", "lowest"), ("3.13", "newest")])
def test_lowest_and_newest_versions_install_and_run(tmp_path: Path, version: str, which: str) -> None:
    wanted = [lowest(one) if which == "lowest" else str(one) for one in declared()]
    own = environment(tmp_path, version, wanted)
    # melon counts hashed n-grams: its arrays are what an old numpy refused.
    sweep = ["defense=none,agentsys,melon", "attack=none,important_instructions", "limit_per_suite=1"]
    done = run([own, "-m", "agentsys", "run", *sweep, f"logdir={tmp_path / 'runs'}"], tmp_path, 400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 cases" in done.stdout
    assert "ended in an error" not in done.stdout.lower()
    tests = run([own, "-m", "pytest", "-q", "-m", "not slow and not live", *TESTS], ROOT, 400)
    assert tests.returncode == 0, tests.stdout[-3000:]
