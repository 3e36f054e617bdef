"""Extensions: optional parts of the package, and the folders that configs are read from.

An extension brings commands and configs. It says so in an object `ROOM`, which an entry point of the group
`agentsys.rooms` names; another distribution may bring one the same way.
Where an extension is not installed its commands and configs are not there, and all else works.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, entry_points, metadata
from importlib.util import find_spec
from pathlib import Path

from platformdirs import user_data_path

from agentsys.errors import DISTRIBUTION

OUR_PACKAGES = ("agentsys", "baselines", "agentsys_plugins")
"""The top-level packages of this distribution."""
_ENTRY_POINT_GROUP = "agentsys.rooms"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CommandSource:
    """Where a command is and what the overview says of it."""

    target: str
    """`module:name` of a command function or a `typer.Typer` with several; `.x` is below `agentsys.cli`."""
    summary: str
    """One line for the list of commands."""
    examples: tuple[str, ...] = ()
    """Lines to type, with which the command's help ends."""


@dataclass(frozen=True)
class CommandSection:
    """Commands that stand together in `agentsys --help`."""

    heading: str
    order: int
    """Sections are shown by it; those of one heading are joined where the first of them stands."""
    commands: Mapping[str, CommandSource]
    """Name -> command, in the order in which they are shown."""


@dataclass(frozen=True)
class RunsToCheck:
    """Stored runs that `agentsys check` is asked about."""

    given: Path
    """The folder, or the bundle."""
    folder: Path
    """The records in it."""
    trust_code: bool
    """Whether source files of a bundle may be executed."""
    workers: int
    version: str | None = None
    """The benchmark's version, for records that name none."""
    names: Path | None = None
    """A file that says whose runs the folders are."""


@dataclass(frozen=True)
class CheckFinding:
    """One line of the page that `agentsys check` prints."""

    subject: str
    grade: str
    """`valid`, `suspect` or `broken`; `note` where it says nothing about these runs."""
    text: str
    details: tuple[str, ...] = ()
    """One line each, the gravest first."""


@dataclass(frozen=True)
class Extension:
    """Commands, configs and data sets that a guest adds."""

    section: CommandSection | None = None
    configs: Path | None = None
    """Folder with YAMLs in groups, as in `configs/`."""
    fetch: Mapping[str, str] = field(default_factory=dict)
    """Data set of `agentsys fetch` -> `module:function`: downloads it to a folder (None: its default) from an address
    (None: its own); returns an `agentsys.benchmarks.fetch_data.DownloadedFolder` and the setting that uses it."""
    check: str | None = None
    """`module:function`: gives the findings of this room about `RunsToCheck`."""
    follow: str | None = None
    """`module:function`: serves the report of runs that go on, made anew by a function of a stamp."""


@lru_cache(maxsize=1)
def load_extensions() -> tuple[Extension, ...]:
    """The extensions that are installed; one that cannot be loaded is left out with a warning.

    A guest of our own distribution whose folder was taken away is left out in silence (`list_absent_guests`).
    """
    found = []
    absent = set(list_absent_guests())
    for entry in sorted(entry_points(group=_ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        if entry.module in absent:
            continue
        try:
            room = entry.load()
            if not isinstance(room, Extension):
                raise TypeError(f"it is a {type(room).__name__}, not an agentsys.extensions.Extension")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one, all else is to work
            why = " ".join(str(error).split()) or type(error).__name__
            _log.warning("Room '%s' (%s) is left out: %s", entry.name, entry.value, why)
        else:
            found.append(room)
    return tuple(found)


def list_absent_guests() -> list[str]:
    """List the guests (`agentsys_plugins.NAME`) of this distribution that are registered but not there."""
    modules = sorted({entry.module for entry in entry_points(group=_ENTRY_POINT_GROUP)})
    return [name for name in modules if name.startswith(f"{OUR_PACKAGES[-1]}.") and not _is_there(name)]


def explain_absent_guests() -> str:
    """Write a sentence that names the absent guests and the mend, after a blank; empty if all are there."""
    names = [name.rpartition(".")[2] for name in list_absent_guests()]
    return f" Not installed: {', '.join(names)}; install {DISTRIBUTION} again to have them." if names else ""


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it lies in
        return False


def group_commands(core: Iterable[CommandSection]) -> dict[str, dict[str, CommandSource]]:
    """Heading -> its commands, the core's and those of rooms; a room takes none of the core's names."""
    own = tuple(core)
    taken = {name for section in own for name in section.commands}
    found: dict[str, dict[str, CommandSource]] = {}
    brought = [room.section for room in load_extensions() if room.section is not None]
    for section in sorted([*own, *brought], key=lambda section: section.order):
        free = {n: c for n, c in section.commands.items() if section in own or n not in taken}
        found.setdefault(section.heading, {}).update(free)
    return found


def shipped_config_dir() -> Path:
    """The folder with the groups model/, defense/, attack/, benchmark/, executor/ and experiment/.

    It lies inside the wheel, or at the top of a checkout.
    """
    return _find_shipped_dir("configs")


def find_shipped_docs_dir() -> Path:
    """The folder with the pages that messages name as `docs/...`: inside the wheel, or of a checkout."""
    return _find_shipped_dir("docs")


def find_shipped_examples_dir() -> Path:
    """The folder with the plug-ins that `agentsys new` copies: inside the wheel, or of a checkout."""
    return _find_shipped_dir("examples")


def _find_shipped_dir(name: str) -> Path:
    in_wheel = Path(__file__).parent / name
    return in_wheel if in_wheel.is_dir() else Path(__file__).parents[1] / name


def list_shipped_config_dirs() -> list[Path]:
    """The folders that shipped configs lie in: the package's own first, then those of installed extensions."""
    return [
        shipped_config_dir(),
        *(room.configs for room in load_extensions() if room.configs is not None),
    ]


FETCHED = "fetched"
"""Value of a benchmark's option for data that `agentsys fetch` downloaded to the user's data folder."""


def find_user_data_folder() -> Path:
    """The user's folder for what was fetched (`XDG_DATA_HOME` where it is set)."""
    return user_data_path("agentsys")


_HIDDEN_EXTRAS = frozenset({"dev"})
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_REQUIREMENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_requirements() -> dict[str | None, list[str]]:
    """Extra -> packages it asks for; under None those that are always needed, first.

    Empty where agentsys is not installed as a package.
    """
    try:
        own = metadata(DISTRIBUTION)
    except PackageNotFoundError:
        return {}
    extras = [name for name in own.get_all("Provides-Extra") or [] if name not in _HIDDEN_EXTRAS]
    found: dict[str | None, list[str]] = {None: [], **{name: [] for name in extras}}
    for line in own.get_all("Requires-Dist") or []:
        extra = _EXTRA.search(line)
        package = _REQUIREMENT_NAME.match(line)
        group = extra[1] if extra else None
        if package and group in found:
            found[group].append(package.group())
    return found
