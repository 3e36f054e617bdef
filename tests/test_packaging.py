"""What is shipped: metadata, exact versions, the Makefile's promises, and a wheel that runs on its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentsys import __version__
from agentsys.extras import DISTRIBUTION

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")


def pyproject() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


_PARTS = ("", "-detectors", "-distributed", "-inspect", "-servers")
CONSTRAINTS = tuple(f"constraints{part}.txt" for part in _PARTS)
"""The others add to the first what the extras they are named after need; no package stands in two."""


def constraints() -> list[Requirement]:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in CONSTRAINTS]
    lines = [line for text in texts for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(python: str) -> dict[str, str]:
    """Package -> exact version on one version of Python."""
    applying = [c for c in constraints() if not c.marker or c.marker.evaluate({"python_version": python})]
    names = [canonicalize_name(requirement.name) for requirement in applying]
    assert len(names) == len(set(names)), "a package is pinned twice"
    return {
        name: str(requirement.specifier).removeprefix("==")
        for name, requirement in zip(names, applying, strict=True)
    }


def declared() -> list[Requirement]:
    project = pyproject()["project"]
    extras = [name for names in project["optional-dependencies"].values() for name in names]
    return [Requirement(text) for text in [*project["dependencies"], *extras]]


@pytest.mark.parametrize("python", PYTHONS)
def test_every_declared_package_is_pinned_within_its_range(python: str) -> None:
    pinned = pins(python)
    for requirement in declared():
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), requirement.name


def test_constraints_are_exact_versions_and_name_no_index_file_or_ourselves() -> None:
    text = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in CONSTRAINTS)
    assert not re.search(r"://|^-|@|/", "\n".join(str(line) for line in constraints()))
    assert not re.search(r"^(-|--)", text, re.MULTILINE)
    assert all(re.fullmatch(r"==[^,*]+", str(requirement.specifier)) for requirement in constraints())
    assert "agentsys" not in {canonicalize_name(requirement.name) for requirement in constraints()}


def test_one_version_stands_in_package_metadata_and_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert pyproject()["project"]["version"] == citation["version"] == __version__
    assert pyproject()["project"]["license"] == citation["license"] == "MIT"


def test_no_hint_installs_the_stranger_that_owns_our_import_name_on_the_index() -> None:
    old_form = re.compile(r"(?:pip|pipx|uv|uvx)\b[^\n]*?[\s'\"]agentsys(?:\\?\[|==|[\s'\"`]*$)", re.MULTILINE)
    rooms = ("agentsys", "baselines", "configs", "docs", "examples", "notebooks", "scripts", "tests", ".ci")
    found = (path for room in rooms for path in (ROOT / room).rglob("*") if path.is_file())
    files = [path for path in found if path.parent.name != "__pycache__"]
    files += [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml", *CONSTRAINTS)]
    text = {
        path: path.read_text(encoding="utf-8", errors="replace") for path in files if path != Path(__file__)
    }
    assert [str(path) for path in text if old_form.search(text[path])] == []
    assert old_form.search("pip install 'agentsys[litellm]'")
    assert old_form.search("uv pip install -U agentsys")
    assert pyproject()["project"]["name"] == DISTRIBUTION


def make(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_make_alone_explains_every_target() -> None:
    named = re.findall(r"^make ([a-z-]+)", make().stdout, re.MULTILINE)
    assert {"setup", "run", "test", "test-slow", "lint", "clean", "help"} <= set(named)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile, what it depends on, and a `.venv` whose Python only says it was called."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    python.chmod(0o755)
    return tmp_path


def installs(project: Path) -> int:
    calls = project / "calls"
    return calls.read_text().count(" install ") if calls.exists() else 0


def test_setup_installs_once_and_again_only_after_its_inputs_changed(project: Path) -> None:
    assert make("setup", cwd=project).returncode == 0
    make("setup", cwd=project)
    assert installs(project) == 1
    future = (project / ".venv" / ".installed").stat().st_mtime + 10
    os.utime(project / "constraints.txt", (future, future))
    make("setup", cwd=project)
    assert installs(project) == 2
    wanted = "install -c constraints.txt -e .[dev,docs,litellm,mcp,middleware,notebooks,z3]"
    assert wanted in (project / "calls").read_text()


def test_setup_that_failed_is_tried_again(project: Path) -> None:
    python = project / ".venv" / "bin" / "python"
    working = python.read_text()
    python.write_text(working + 'case "$*" in *" install "*) exit 1;; esac\n')
    assert make("setup", cwd=project).returncode != 0
    python.write_text(working)
    assert make("setup", cwd=project).returncode == 0
    assert installs(project) == 2


def setup_with(folder: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """`make setup` where there is no `.venv` yet and PATH has only these Pythons (shell texts)."""
    shutil.rmtree(folder / ".venv")
    bare = _only(folder, "make", "touch", "mkdir", "chmod")
    for name, text in pythons.items():
        (bare / name.replace("_", ".")).write_text(f"#!/bin/sh\n{text}\n")
        (bare / name.replace("_", ".")).chmod(0o755)
    return subprocess.run(
        ["make", "setup"],
        cwd=folder,
        env={"PATH": str(bare)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


MAKES_VENV = """case "$*" in
    *venv*) mkdir -p .venv/bin; echo '#!/bin/sh' > .venv/bin/python; chmod 755 .venv/bin/python;;
    --version) echo Python 3.12.1;;
esac"""


def test_setup_passes_over_a_python3_of_another_version(project: Path) -> None:
    done = setup_with(project, python3="exit 1", python3_12=MAKES_VENV)
    assert done.returncode == 0, done.stderr
    assert "with Python 3.12.1" in done.stdout
    assert (project / ".venv" / ".installed").exists()


def test_setup_without_a_suitable_python_says_so_and_what_to_type(project: Path) -> None:
    done = setup_with(project, python3="exit 1")
    assert done.returncode != 0
    assert "No Python 3.11 to 3.13 found" in done.stderr
    assert "make PYTHON=" in done.stderr


def _only(folder: Path, *programs: str) -> Path:
    """A folder for PATH that has only these programs."""
    bare = folder / "bare"
    bare.mkdir()
    for program in programs:
        found = next(p for d in os.get_exec_path() if (p := Path(d) / program).exists())
        (bare / program).symlink_to(found)
    return bare


def run(command: Sequence[str | Path], cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without build isolation so that no network is needed."""
    folder = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_a_wheel_carries_both_packages_every_config_the_licence_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {f"agentsys/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    code = {
        str(path.relative_to(ROOT))
        for room in ("agentsys", "baselines")
        for path in (ROOT / room).rglob("*.py")
    }
    samples = {str(path.relative_to(ROOT)) for path in (ROOT / "agentsys").rglob("*.jsonl")}
    assert samples
    assert configs | code | samples <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {
        "agentsys",
        "baselines",
        f"agentsys_bench-{__version__}.dist-info",
    }


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scripts folder of a fresh environment with the wheel in it; its dependencies come from this one's."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run([sys.executable, "-m", "venv", venv], ROOT)
    run([venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], venv)
    site = run(
        [venv / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], venv
    )
    # A .pth line appends a folder without reading the .pth files in it, so that the editable
    # install of this checkout is not found through it.
    (Path(site.stdout.strip()) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv / "bin"


@pytest.mark.slow
def test_an_installed_wheel_lists_runs_and_tabulates_without_the_checkout(
    empty_environment: Path, tmp_path: Path
) -> None:
    python, agentsys = empty_environment / "python", empty_environment / "agentsys"
    where = run(
        [python, "-c", "import agentsys, baselines; print(agentsys.__file__, baselines.__file__)"], tmp_path
    )
    assert str(ROOT) not in where.stdout
    assert "spotlighting" in run([agentsys, "list", "defenses"], tmp_path).stdout
    chosen = ["model=simulated", "defense=none", "attack=none", "benchmark.suites=[banking]"]
    run([agentsys, "run", *chosen, "user_tasks=[0]", "logdir=out"], tmp_path)
    assert len(list((tmp_path / "out").rglob("none.json"))) == 1
    table = run([agentsys, "results", "out", "--format", "csv"], tmp_path).stdout
    assert "benign_utility" in table
