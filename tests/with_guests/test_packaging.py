"""What is shipped: metadata, exact versions and lower bounds, the Makefile's promises, a wheel that runs alone."""

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
from functools import cache
from importlib.metadata import requires, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_output import run_program
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from parsed_sources import list_product_files

from agentsys import __version__
from agentsys.errors import DISTRIBUTION
from agentsys.extensions import OUR_PACKAGES

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")


def pyproject() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


_PARTS = ("", "-detectors", "-distributed", "-inspect")
CONSTRAINTS = tuple(f"constraints{part}.txt" for part in _PARTS)
"""The others add to the first what the extras they are named after need; no package stands in two."""


def constraints() -> list[Requirement]:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in CONSTRAINTS]
    lines = [line for text in texts for line in text.splitlines()]
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def pins(python: str) -> dict[str, str]:
    """Package -> exact version on one version of Python."""
    here = {"python_version": python, "python_full_version": f"{python}.9"}
    applying = [c for c in constraints() if not c.marker or c.marker.evaluate(here)]
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


@cache
def core_closure() -> dict[str, str]:
    """Package -> version of all that the package alone needs, as installed here."""
    if Path(sys.prefix).name in (".venv-lowest", ".venv-newest"):
        pytest.skip("the environment of another lane, not of constraints.txt")
    found: dict[str, str] = {}
    open_ones = [(Requirement(text), "") for text in pyproject()["project"]["dependencies"]]
    seen: set[tuple[str, str]] = set()
    while open_ones:
        requirement, extra = open_ones.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found[name] = version(name)
        for further in {"", *requirement.extras} - {more for known, more in seen if known == name}:
            seen.add((name, further))
            open_ones += [(Requirement(text), further) for text in requires(name) or ()]
    return found


def test_the_licence_of_all_that_is_installed_is_listed() -> None:
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line[:1] == "|"]
    listed = {canonicalize_name(row[0]): row[1] for row in rows[2:] if row[2] not in ("", "UNKNOWN")}
    pinned = pins("3.11")  # The page's Python; constraints.txt has another numpy for later ones.
    assert listed == {name: str(pinned[name]) for name in core_closure()}


def test_every_dependency_has_its_reason_in_a_comment() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    part = text.partition("\ndependencies = [")[2].partition("[project.scripts]")[0].splitlines()
    lines = [(before, line) for before, line in pairwise(part) if re.search('"[^"]*[=<>-]', line)]
    assert len(lines) > 50
    assert [line for before, line in lines if before.lstrip()[:1] != "#"] == []


def test_a_range_ends_at_the_next_major_version_or_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    pinned = pins("3.11")
    for requirement in declared():
        now = Version(pinned[canonicalize_name(requirement.name)])
        own = re.search(rf'#([^\n]*)\n[^\n#]*"{re.escape(requirement.name)}[^"]*"', text)
        for cap in (Version(spec.version) for spec in requirement.specifier if spec.operator == "<"):
            assert now < cap
            assert cap == Version(str(now.major + 1)) or (own and "narrow" in own[1]), requirement


def test_the_lowest_versions_are_those_of_the_ranges() -> None:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    resolved = [Requirement(line) for line in lines if line[:1] != "#"]
    assert {str(one) for one in resolved if str(one.specifier)[:2] != "=="} == set()
    lowest_of = {canonicalize_name(one.name): Version(str(one.specifier)[2:]) for one in resolved}
    for requirement in declared_core():
        assert lowest_of[canonicalize_name(requirement.name)] == Version(
            lowest(requirement).partition("==")[2]
        )


def test_hashes_are_of_the_same_versions_and_name_no_index() -> None:
    text = (ROOT / "requirements-hashes.txt").read_text(encoding="utf-8")
    assert "://" not in text and not re.search(r"^--", text, re.MULTILINE)
    blocks = [block for block in re.split(r"\n(?=\w)", text) if "==" in block.split("\n")[0]]
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", block) for block in blocks)
    hashed = [Requirement(block.split("\\")[0]) for block in blocks if not block.startswith("#")]
    for python in PYTHONS:
        here = [
            one
            for one in hashed
            if not one.marker or one.marker.evaluate({"python_full_version": f"{python}.9"})
        ]
        found = {canonicalize_name(one.name): str(one.specifier)[2:] for one in here}
        assert found.items() <= pins(python).items()
        assert core_closure().keys() <= found.keys()


def test_one_version_stands_in_package_metadata_and_citation() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert pyproject()["project"]["version"] == citation["version"] == __version__
    assert pyproject()["project"]["license"] == citation["license"] == "MIT"


def test_no_hint_installs_the_stranger_that_owns_our_import_name_on_the_index() -> None:
    old_form = re.compile(r"(?:pip|pipx|uv|uvx)\b[^\n]*?[\s'\"]agentsys(?:\\?\[|==|[\s'\"`]*$)", re.MULTILINE)
    rooms = (*OUR_PACKAGES, "configs", "docs", "examples", "notebooks", "scripts", "tests", ".ci")
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
    """A folder with the Makefile, what it depends on, and a `.venv` whose Python only says it was called.

    PATH has nothing but what its recipes need: no Python and no uv.
    """
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_text((ROOT / name).read_text(encoding="utf-8"))
    for program in ("make", "touch", "mkdir", "chmod"):
        (tmp_path / "bare").mkdir(exist_ok=True)
        found = next(path for folder in os.get_exec_path() if (path := Path(folder) / program).exists())
        (tmp_path / "bare" / program).symlink_to(found)
    script(tmp_path / ".venv/bin/python", NOTES_CALL)
    script(tmp_path / ".venv/bin/agentsys", NOTES_CALL)
    return tmp_path


NOTES_CALL = 'echo "$0 $*" >> calls'
FAILS_TO_INSTALL = f'{NOTES_CALL}\ncase "$*" in *" install "*) exit 1;; esac'


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make_in(project: Path, target: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", target],
        cwd=project,
        env={"PATH": str(project / "bare"), "PIP_CERT": "corporate.pem"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def installs(project: Path) -> list[str]:
    """The commands that installed something, in order."""
    calls = project / "calls"
    lines = calls.read_text().splitlines() if calls.exists() else []
    return [line for line in lines if " install " in line]


CORE = "install --no-compile -c constraints.txt -e ."
EVERYTHING = "install --no-compile -c constraints.txt -e .[dev,docs,litellm,mcp,middleware,notebooks,parquet]"


def test_run_installs_the_core_alone_and_setup_what_tests_need_into_the_same(project: Path) -> None:
    assert make_in(project, "run").returncode == 0
    make_in(project, "run")
    assert [line.partition("check ")[2] for line in installs(project)] == [CORE]
    assert make_in(project, "setup").returncode == 0
    make_in(project, "setup")
    make_in(project, "run")
    assert [line.partition("check ")[2] for line in installs(project)] == [CORE, EVERYTHING]


def test_setup_installs_again_only_after_its_inputs_changed(project: Path) -> None:
    assert make_in(project, "setup").returncode == 0
    future = (project / ".venv" / ".dev").stat().st_mtime + 10
    os.utime(project / "constraints.txt", (future, future))
    make_in(project, "setup")
    assert len(installs(project)) == 2


def test_an_installation_that_failed_is_tried_again(project: Path) -> None:
    script(project / ".venv/bin/python", FAILS_TO_INSTALL)
    assert make_in(project, "setup").returncode != 0
    assert make_in(project, "run").returncode != 0
    script(project / ".venv/bin/python", NOTES_CALL)
    assert make_in(project, "setup").returncode == 0
    assert len(installs(project)) == 3


def test_uv_installs_where_there_is_one_and_is_told_of_pips_certificates(project: Path) -> None:
    script(project / "bare/uv", 'echo "$UV_SYSTEM_CERTS $SSL_CERT_FILE uv $*" >> calls')
    assert make_in(project, "run").returncode == 0
    wanted = "uv pip install --quiet --python .venv/bin/python -c constraints.txt -e ."
    assert installs(project) == [f"1 corporate.pem {wanted}"]


def test_where_uv_fails_pip_installs(project: Path) -> None:
    script(project / "bare/uv", FAILS_TO_INSTALL)
    assert make_in(project, "run").returncode == 0
    by_uv, by_pip = installs(project)
    assert "/uv pip install" in by_uv
    assert by_pip.startswith(".venv/bin/python -m pip")


def setup_with(project: Path, **pythons: str) -> subprocess.CompletedProcess[str]:
    """`make setup` where there is no `.venv` yet and PATH has only these Pythons (shell texts)."""
    shutil.rmtree(project / ".venv")
    for name, text in pythons.items():
        script(project / "bare" / name.replace("_", "."), text)
    return make_in(project, "setup")


MAKES_VENV = """case "$*" in
    *venv*) mkdir -p .venv/bin; echo '#!/bin/sh' > .venv/bin/python; chmod 755 .venv/bin/python;;
    --version) echo Python 3.12.1;;
esac"""


def test_setup_passes_over_a_python3_of_another_version(project: Path) -> None:
    done = setup_with(project, python3="exit 1", python3_12=MAKES_VENV)
    assert done.returncode == 0, done.stderr
    assert "with Python 3.12.1" in done.stdout
    assert (project / ".venv" / ".dev").exists()


def test_setup_without_a_suitable_python_says_so_and_what_to_type(project: Path) -> None:
    done = setup_with(project, python3="exit 1")
    assert done.returncode != 0
    assert "No Python 3.11 to 3.13 found" in done.stderr
    assert "make PYTHON=" in done.stderr


def run(command: Sequence[str | Path], cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    done = run_program(command, cwd, timeout)
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
def test_a_wheel_carries_our_packages_every_config_the_licence_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    configs = {f"agentsys/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    configs |= {str(path.relative_to(ROOT)) for path in list_product_files(".yaml")}
    code = {str(path.relative_to(ROOT)) for path in list_product_files()}
    samples = {str(path.relative_to(ROOT)) for path in (ROOT / "agentsys").rglob("*.jsonl")}
    assert samples
    pages = {f"agentsys/{path.relative_to(ROOT)}" for path in (ROOT / "docs").rglob("*.md")}
    assert configs | code | samples | pages <= names
    assert not any(name.endswith(".png") or "/tests/" in name for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0] for name in names} == {
        *OUR_PACKAGES,
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
    shown = run([agentsys, "list", "defenses"], tmp_path).stdout
    assert "spotlighting" in shown
    assert "middleware_policy" in shown
    told = run([agentsys, "--help"], tmp_path).stdout
    assert "rescore" in told and "site-packages/agentsys/docs" in re.sub(r"\s", "", told)
    chosen = ["model=simulated", "defense=none", "attack=none", "benchmark.suites=[banking]"]
    run([agentsys, "run", *chosen, "user_tasks=[0]", "logdir=out"], tmp_path)
    assert len(list((tmp_path / "out").rglob("none.json"))) == 1
    table = run([agentsys, "results", "out", "--format", "csv"], tmp_path).stdout
    assert "benign_utility" in table


TESTS = (
    "tests/records/test_load_runs.py",
    "tests/analysis/test_figures.py",
    "tests/baselines/test_melon_embedders.py",
    "tests/runs/test_store.py",
    "tests/runs/test_compose.py",
)
"""What touches the packages whose behaviour changes between versions: arrays, frames, figures, configs."""


def declared_core() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [Requirement(line) for line in project["dependencies"]]


def lowest(requirement: Requirement) -> str:
    (bound,) = [spec.version for spec in requirement.specifier if spec.operator in {">=", "=="}]
    return f"{requirement.name}=={bound}"


def test_every_dependency_has_a_lower_bound() -> None:
    assert all(lowest(requirement) for requirement in declared_core())


def python_of(version: str) -> str:
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


def environment(folder: Path, version: str, requirements: Sequence[str]) -> Path:
    """The Python of a fresh environment with these packages; skips where the index is out of reach."""
    made = run_program([python_of(version), "-m", "venv", folder / "venv"], folder, 300)
    assert made.returncode == 0, made.stderr
    own = folder / "venv" / "bin" / "python"
    pip = [own, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    # An index that is out of reach is tried for minutes else.
    try:
        done = run_program(
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
    wanted = [lowest(one) if which == "lowest" else str(one) for one in declared_core()]
    own = environment(tmp_path, version, wanted)
    # melon counts hashed n-grams: its arrays are what an old numpy refused.
    sweep = ["defense=none,agentsys,melon", "attack=none,important_instructions", "limit_per_suite=1"]
    done = run_program(
        [own, "-m", "agentsys", "run", *sweep, f"logdir={tmp_path / 'runs'}"],
        tmp_path,
        400,
        PYTHONPATH=str(ROOT),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 cases" in done.stdout
    assert "ended in an error" not in done.stdout.lower()
    tests = run_program(
        [own, "-m", "pytest", "-q", "-m", "not slow and not live", *TESTS], ROOT, 400, PYTHONPATH=str(ROOT)
    )
    assert tests.returncode == 0, tests.stdout[-3000:]
