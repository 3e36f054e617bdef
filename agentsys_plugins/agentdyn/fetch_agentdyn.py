"""Downloads AgentDyn's package at the known commit, for `agentsys fetch agentdyn`."""

from __future__ import annotations

from pathlib import Path

from agentsys.benchmarks.fetch_data import ARCHIVE_HOST, ArchivePart, DownloadedFolder, fetch_archive_part
from agentsys.errors import ConfigError
from agentsys_plugins.agentdyn.checkout import COMMIT, KNOWN, find_agentdyn_folder, read_checkout

_URL = f"{ARCHIVE_HOST}/SaFo-Lab/AgentDyn/tar.gz/{COMMIT}"


def fetch_agentdyn(to: Path | None, source: str | None) -> tuple[DownloadedFolder, str]:
    """Download AgentDyn's package at the known commit.

    Returns:
        The folder, and the setting that uses it.

    Raises:
        ConfigError: If the download fails, or its files are not those of the commit.
    """
    part = ArchivePart("src/agentdojo/", (".py", ".yaml"))
    folder = (to or find_agentdyn_folder()) / "src" / "agentdojo"
    done = fetch_archive_part(source or _URL, part, folder, _check_is_agentdyn)
    return done, "benchmark=agentdyn" if to is None else f"benchmark=agentdyn benchmark.source={to}"


def _check_is_agentdyn(folder: Path) -> None:
    digest = read_checkout(str(folder)).digest
    if digest not in KNOWN:
        raise ConfigError(f"the files have SHA-256 {digest}: not those of commit {COMMIT[:7]}.")
