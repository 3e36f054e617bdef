"""Each optional room can be lifted out, and a stranger's can be put in: the rest works as before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from command_output import run_program
from optional_rooms import GUESTS, NEEDS
from parsed_sources import list_product_files

from agentsys.extensions import OUR_PACKAGES

ROOT = Path(__file__).parents[2]
_GROUP = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
ENTRIES: dict[str, str] = _GROUP["agentsys.rooms"]
RUN_LINES = """
import json, sys
from agentsys.cli import main
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            sys.exit(f"{line}: {stop.code}")
"""
CORE = (
    ("--help",),
    ("list", "defenses"),
    ("list", "attacks"),
    ("list", "benchmarks"),
    ("show", "config", "experiment=table2"),
    (
        *("run", "model=simulated", "defense=none,prompt_sandwiching", "attack=important_instructions"),
        *("benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[0]", "logdir=runs"),
    ),
    ("results", "runs"),
    ("compare", "runs"),
    ("table", "2", "runs"),
    ("report", "runs"),
)
OF_GUESTS = {
    "agentdyn": ("agentdyn",),
    "rivals": ("fides", "promptarmor"),
    "typed": ("agentsys_typed", "nested"),
    "audit": ("audit", "rescore"),
    "bundles": ("bundle",),
    "serve": ("serve", "probe"),
    "inspect_logs": ("export",),
    "guards": ("guards", "kiwi_skin"),
    "vectors": ("vectors", "middleware_policy"),
    "redteam": ("chatinject", "cached", "encoded", "evolve"),
}
"""Room -> what lists show with it alone: commands, defenses, attacks."""


def installed_without(rooms: Collection[str], folder: Path) -> Path:
    """A folder to import from: the package as a wheel has it, without these rooms."""
    site = folder / "site"
    for package in OUR_PACKAGES:
        ignored = shutil.ignore_patterns(
            "__pycache__", "tests", *(rooms if package == OUR_PACKAGES[-1] else ())
        )
        shutil.copytree(ROOT / package, site / package, ignore=ignored)
    shutil.copytree(ROOT / "configs", site / "agentsys" / "configs")
    shutil.copytree(ROOT / "results" / "published", site / "agentsys" / "published")
    register(site, "agentsys_bench", ENTRIES)
    return site


def register(site: Path, distribution: str, entries: Mapping[str, str]) -> None:
    """Say as an installer does which rooms a distribution has."""
    info = site / f"{distribution}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n")
    listed = "".join(f"{name} = {target}\n" for name, target in entries.items())
    (info / "entry_points.txt").write_text(f"[agentsys.rooms]\n{listed}")


def run_lines(site: Path, folder: Path, *lines: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN_LINES, json.dumps(lines)]
    done = run_program(command, folder, 300, PYTHONPATH=str(site), PYTHONHASHSEED="0", COLUMNS="120")
    assert done.returncode == 0, done.stderr
    return done


def first_words(shown: str) -> set[str]:
    """What begins a line of the overview or of a list."""
    return {words[0] for line in shown.splitlines() if (words := line.strip("│ ").split())}


def check_without(rooms: Collection[str], folder: Path) -> None:
    done = run_lines(installed_without(rooms, folder), folder, *CORE)
    assert "left out:" not in done.stderr
    assert (folder / "runs" / "report.html").exists() or list(folder.rglob("*.html"))
    shown = first_words(done.stdout)
    for room, names in OF_GUESTS.items():
        assert (set(names) & shown) == (set() if room in rooms else set(names)), room


def test_every_room_is_looked_at_here() -> None:
    assert set(ENTRIES) == set(GUESTS) == set(OF_GUESTS)


@pytest.mark.slow
def test_without_any_room_the_core_lists_runs_and_tabulates(tmp_path: Path) -> None:
    check_without(GUESTS, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("room", GUESTS)
def test_without_one_room_the_core_and_the_others_work(room: str, tmp_path: Path) -> None:
    check_without([room], tmp_path)


@pytest.mark.slow
def test_a_config_and_a_command_of_an_absent_guest_are_answered_with_its_name(tmp_path: Path) -> None:
    site = installed_without(["rivals", "audit"], tmp_path)
    for line in (("run", "model=simulated", "defense=fides"), ("rescore", "runs")):
        command = [sys.executable, "-c", RUN_LINES, json.dumps([line])]
        done = run_program(command, tmp_path, 300, PYTHONPATH=str(site))
        assert done.returncode
        assert "Not installed: audit, rivals" in " ".join((done.stdout + done.stderr).split())
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("agentsys.serve_agent", "agentsys_plugins.serve", "guard"),
        ("agentsys.serve_agent", "agentsys_plugins.serve", "mcp_tools"),
        ("agentsys.models.serving", "agentsys_plugins.serve.served_model", "serve"),
        ("baselines.middleware", "agentsys_plugins.vectors.middleware", "Guard"),
    ],
)
def test_public_names_of_version_0_2_are_still_imported_from_where_they_were(
    old: str, new: str, name: str
) -> None:
    with pytest.warns(FutureWarning, match=f"import {name} from {new}") as warned:
        former = getattr(import_module(old), name)
    assert former is getattr(import_module(new), name)
    assert len(warned) == 1


def test_the_page_lists_which_guest_may_import_which() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| guest | may import") :]
    rows = re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \|", table, re.MULTILINE)
    assert {guest: tuple(re.findall(r"`(\w+)`", others)) for guest, others in rows} == NEEDS


def test_the_list_of_guests_names_each_with_its_size() -> None:
    page = (ROOT / "agentsys_plugins" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[(\w+)\]\(\1/README\.md\) .*\| ([\d,]+) \|$", page, re.MULTILINE)
    sizes = dict.fromkeys(GUESTS, 0)
    for path in list_product_files(folders=("agentsys_plugins",)):
        if (guest := path.parent.relative_to(ROOT / "agentsys_plugins").parts[:1]) != ():
            sizes[guest[0]] += len(path.read_text(encoding="utf-8").splitlines())
    assert [name for name, _ in listed] == sorted(GUESTS)
    assert all(
        abs(int(size.replace(",", "")) - sizes[name]) <= 100 + sizes[name] / 10 for name, size in listed
    )


OWN_ROOM = """
from importlib import import_module
from pathlib import Path
from agentsys.extensions import CommandSection, CommandSource, Extension
configs = Path(__file__).parent / "configs"
count = CommandSource("mine.command:count", "Count mails.", ("agentsys count 3",))
other = CommandSource("mine.command:count", "Not the one you know.")
ROOM = Extension(CommandSection("Read what was run", 25, {"count": count, "run": other}), configs)
"""
OWN_COMMAND = '''
def count(mails: int) -> None:
    """Count mails."""
    print(f"counted {mails}")
'''


@pytest.mark.slow
def test_a_strangers_room_adds_commands_and_configs_and_takes_no_name_of_the_core(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "mine" / "configs" / "defense").mkdir(parents=True)
    (site / "mine" / "__init__.py").write_text("")
    (site / "mine" / "room.py").write_text(OWN_ROOM)
    (site / "mine" / "command.py").write_text(OWN_COMMAND)
    shipped = (ROOT / "configs" / "defense" / "none.yaml").read_text(encoding="utf-8")
    (site / "mine" / "configs" / "defense" / "nothing_mine.yaml").write_text(shipped)
    register(site, "mine", {"mine": "mine.room:ROOM"})
    lines: Any = [
        ("--help",),
        ("count", "3"),
        ("count", "--help"),
        ("list", "defenses"),
        ("show", "config", "defense=nothing_mine"),
    ]
    done = run_lines(site, tmp_path, *lines)
    assert "counted 3" in done.stdout
    assert {"count", "figure", "nothing_mine", "agentsys"} <= first_words(done.stdout)
    assert "Not the one you know" not in done.stdout
    assert "agentsys count 3" in done.stdout


def test_rooms_that_cannot_be_loaded_are_left_out_in_one_line_each(tmp_path: Path) -> None:
    broken = {"absent": "mine.nowhere:ROOM", "odd": "json:dumps"}
    register(tmp_path / "site", "mine", broken)
    done = run_lines(tmp_path / "site", tmp_path, ("list", "models"))
    assert "simulated" in done.stdout
    told = {line.split(" is left out: ")[0] for line in done.stderr.splitlines()}
    assert told == {f"Room '{name}' ({target})" for name, target in broken.items()}
