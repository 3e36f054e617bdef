"""What can be fetched: from which state of which repository, and how it is known to be that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentsys.benchmarks.agentdyn.checkout import COMMIT, KNOWN, agentdyn_folder, read_checkout
from agentsys.config_dir import user_data_folder
from agentsys.errors import ConfigError
from agentsys.fetched.archive import DownloadedFolder, ArchivePart, make_digest_check, fetch_archive_part

_HOST = "https://codeload.github.com"
_ATTACKED_FILES = "*/important_instructions/*.json"


@dataclass(frozen=True)
class RunsSource:
    """Published runs in a repository, `runs/PIPELINE/SUITE/USER_TASK/ATTACK/INJECTION.json`."""

    repository: str
    ref: str
    """A commit; of a release, its tag."""
    default: str
    """The pipeline that is fetched where none is named."""
    known: Mapping[str, Mapping[str, str]]
    """Pipeline -> pattern of files in its folder -> their digest (`digest_of`)."""

    @property
    def url(self) -> str:
        """Address of the archive."""
        return f"{_HOST}/{self.repository}/tar.gz/{self.ref}"


RUNS_SOURCES = {
    "agentdojo-runs": RunsSource(
        repository="ethz-spylab/agentdojo",
        # A tag, not a commit: a tag may be moved, so the digests below are what tells the files.
        ref="refs/tags/v0.1.35",
        default="gpt-4o-mini-2024-07-18",
        known={
            "gpt-4o-mini-2024-07-18": {
                "*/*/none/*.json": "0b6453db3ecdd73a01c11405f8a8c8cb437d68cf48d3d10ea66f898d6fa26069",
                f"*/{_ATTACKED_FILES}": "681f8a04e76f5aa178160949fe57762bde311becb6aff28cbbcb796a074c2efc",
            },
            "gpt-4o-2024-05-13-tool_filter": {
                "*/*/none/*.json": "4e6cdecfc370c00011e83b4998fc9b8a252c2175caae8ef59e4012cdfbec755e",
                f"*/{_ATTACKED_FILES}": "7dfb6c5cee95a54f1cab25371ad46569dcbfc7514412122b41f0b72e6cdee17f",
            },
        },
    ),
    "drift-runs": RunsSource(
        repository="SaFo-Lab/DRIFT",
        ref="53dbc6c58d5d1f044f3a68636be30b060bb86d34",
        default="gpt-4o-mini-2024-07-18",
        known={
            "gpt-4o-mini-2024-07-18": {
                f"banking/{_ATTACKED_FILES}": "e7ba013b7e7aa6fdce3c4009eda0a848e1564b2d34bebf512afed14353597dcc",
                f"travel/{_ATTACKED_FILES}": "3f6f980c148859654ac59db62b5583017dd6f570dbf6e23d513b469ecf4ae8b6",
            }
        },
    ),
}
"""Name on the command line -> source."""

AGENTDYN_SOURCE = "agentdyn"
_AGENTDYN_URL = f"{_HOST}/SaFo-Lab/AgentDyn/tar.gz/{COMMIT}"


def fetch_runs(name: str, pipeline: str | None, to: Path | None, source: str | None) -> tuple[DownloadedFolder, bool]:
    """Get a pipeline's published runs.

    Args:
        name: Key of `RUNS`.
        pipeline: Name of its folder; None: the default one.
        to: Folder to put the pipeline's folder into; None: one of the user's data folder.
        source: Address of another archive of the repository.

    Returns:
        Where they are, and whether their digests were known beforehand and are right.

    Raises:
        ConfigError: If they cannot be had, are not the published ones, or the name is no folder's.
    """
    chosen, runs = pipeline or RUNS_SOURCES[name].default, RUNS_SOURCES[name]
    if "/" in chosen or "\\" in chosen or chosen.startswith("."):
        raise ConfigError(f"'{chosen}' is no pipeline's name; {runs.default} is one.")
    known = runs.known.get(chosen, {})
    folder = (to or user_data_folder() / name) / chosen
    part = ArchivePart(f"runs/{chosen}/", (".json",))
    return fetch_archive_part(source or runs.url, part, folder, make_digest_check(known)), bool(known)


def fetch_agentdyn(to: Path | None, source: str | None) -> DownloadedFolder:
    """Get AgentDyn's package at the commit whose files are known.

    Raises:
        ConfigError: If it cannot be had, or its files are not those of the commit.
    """
    part = ArchivePart("src/agentdojo/", (".py", ".yaml"))
    folder = (to or agentdyn_folder()) / "src" / "agentdojo"
    return fetch_archive_part(source or _AGENTDYN_URL, part, folder, _check_is_agentdyn)


def _check_is_agentdyn(folder: Path) -> None:
    found = read_checkout(str(folder)).digest
    if found not in KNOWN:
        raise ConfigError(f"the files have SHA-256 {found}: not those of commit {COMMIT[:7]}.")
