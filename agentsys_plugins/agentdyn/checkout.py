"""`Checkout`: the files of AgentDyn that define its suites, and the search for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agentsys.errors import ConfigError
from agentsys.extensions import FETCHED, find_user_data_folder

AGENTDYN_SUITES = ("shopping", "github", "dailylife")
COMMIT = "5353cf7615b135cace8d07c8f12dac53a16b6db3"
"""Commit of SaFo-Lab/AgentDyn (19 May 2026) whose files have the digest below."""
KNOWN = {"f0e1fc6c97548e7dfee7cf84130e5b0e41efa5957cca620c3a33b2f1b120548b": COMMIT[:7]}
"""`Checkout.digest` -> short name of the commit with these files."""

_CODE = "default_suites/v1"
SYSTEM_MESSAGES = "data/system_messages.yaml"
_MARK = f"{_CODE}/shopping/task_suite.py"
"""A file that identifies AgentDyn: no version of AgentDojo has it."""
_LARGEST = 16 * 2**20
"""Most bytes of a file; the largest has 0.1 MB."""


@dataclass(frozen=True)
class Checkout:
    """One state of AgentDyn's files."""

    package: Path
    """The fork's package folder, `agentdojo`."""
    files: Mapping[str, bytes]
    """Path inside it, with `/` -> content, of every file that defines the three suites."""
    digest: str
    """SHA-256 of these files, in hex; independent of their location."""
    version: str
    """The commit's short name; for unknown files `own-` and 8 digits of the digest."""

    def find_data_folder(self, suite: str) -> Path:
        """The folder of a suite's YAML files."""
        return self.package / "data" / "suites" / suite


def find_agentdyn_folder() -> Path:
    """Folder of a downloaded checkout: in the user's data folder (XDG)."""
    return find_user_data_folder() / "agentdyn"


def read_checkout(source: str) -> Checkout:
    """Read the checkout of `benchmark.source`: `fetched`, or the repository, its `src`, or the package in it.

    Raises:
        ConfigError: If there is no such folder, or it does not hold AgentDyn.
    """
    folder = find_agentdyn_folder() if source == FETCHED else Path(source).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"benchmark.source={source}: there is no folder {folder}; {_format_fix(source)}")
    package = next((path for path in _list_candidate_folders(folder) if (path / _MARK).is_file()), None)
    if package is None:
        raise ConfigError(
            f"benchmark.source={source}: no AgentDyn in {folder} (looked for src/agentdojo/{_MARK});"
            f" {_format_fix(source)}"
        )
    package = package.resolve()
    files = dict(_read_files(package, source))
    digest = _digest(files)
    return Checkout(package, MappingProxyType(files), digest, KNOWN.get(digest) or f"own-{digest[:8]}")


def _format_fix(source: str) -> str:
    if source == FETCHED:
        return "run `agentsys fetch agentdyn`, or give benchmark.source=FOLDER of a checkout."
    return "give the folder of a checkout of SaFo-Lab/AgentDyn, or fetched (after `agentsys fetch agentdyn`)."


def _list_candidate_folders(folder: Path) -> Iterator[Path]:
    for root in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        yield from (root, root / "agentdojo", root / "src" / "agentdojo")


def _read_files(package: Path, source: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of the three suites, without the fork's additions to AgentDojo's own suites."""
    code = package / _CODE
    paths = [code / "__init__.py", package / SYSTEM_MESSAGES]
    paths += [path for name in (*AGENTDYN_SUITES, "tools") for path in (code / name).glob("*.py")]
    paths += [path for name in AGENTDYN_SUITES for path in (package / "data/suites" / name).rglob("*.yaml")]
    for path in sorted(paths):
        try:
            if path.stat().st_size > _LARGEST:
                raise ConfigError(f"{path} has more than {_LARGEST} bytes, so it is no file of AgentDyn.")
            yield path.relative_to(package).as_posix(), path.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"benchmark.source={source}: {path} cannot be read ({error.strerror}); {_format_fix(source)}"
            ) from None


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        for part in (name.encode("utf-8", "surrogateescape"), content):
            # So that moving text between files changes the digest.
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()
