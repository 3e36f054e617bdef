"""The data set that `benchmark.data` means, and the places that ASB's own files come from and go to."""

from __future__ import annotations

from pathlib import Path

from agentsys.benchmarks.asb.data import AsbData, read_data
from agentsys.config_dir import user_data_folder
from agentsys.errors import ConfigError

SAMPLE = "sample"
FETCHED = "fetched"

COMMIT = "6456aa03e230244beca317baa0f1f1a2b21ee3aa"
"""Commit of agiresearch/ASB that is fetched. Named in the project's public threads."""
URL = f"https://raw.githubusercontent.com/agiresearch/ASB/{COMMIT}/data"

CHECKSUMS = {
    "agent_task.jsonl": "d6c1d214811b5d908ae9c04ffbbde36ce35d39932766feb8bf24e202441c1dc8",
    "all_normal_tools.jsonl": "45b821931348993de3eda474a997d62cb5b9e7a3fe358e5c81a7ef0417ccb73f",
    "all_attack_tools.jsonl": "c960ab1e60dee2038d51bc64e8f119e565c037c95a8565f176899de8d819a4b2",
    "all_attack_tools_aggressive.jsonl": "e46485f66e2d7a50493272554213896a60f06f743b5c6cd3f008cd13b72fb990",
    "all_attack_tools_non_aggressive.jsonl": (
        "53d8514b90bda4e2c7b939a767e937947d2806b4d0dc0b832de6131941be39f4"
    ),
}
"""File -> SHA-256, in hex, as the copies in the DRIFT and Progent repositories have it."""


def asb_folder() -> Path:
    """Folder that `agentsys fetch asb` fills unless told otherwise: the user's data folder (XDG)."""
    return user_data_folder() / "asb"


def sample_folder() -> Path:
    """The small set that comes with the package."""
    return Path(__file__).parent / "sample"


def load_asb_data(data: str) -> tuple[AsbData, str]:
    """The data set that `benchmark.data` names, and its version as it stands in records.

    Args:
        data: `sample`, `fetched`, or a folder.

    Raises:
        ConfigError: If there is no such data set or something in it is wrong.
    """
    if data == SAMPLE:
        return read_data(sample_folder()), SAMPLE
    folder = asb_folder() if data == FETCHED else Path(data).expanduser()
    if not folder.is_dir():
        mend = (
            "run `agentsys fetch asb` first."
            if data == FETCHED
            else "give sample, fetched or a folder with ASB's files."
        )
        raise ConfigError(f"benchmark.data={data}: there is no folder {folder}; {mend}")
    found = read_data(folder)
    return found, name_data_version(found)


def name_data_version(data: AsbData) -> str:
    """`v1-` and 8 digits of the checksum for ASB's own files; `own-` and 8 digits for any others."""
    return f"{'v1' if data.checksum == ORIGINAL_CHECKSUM else 'own'}-{data.checksum[:8]}"


ORIGINAL_CHECKSUM = "e115f1aa281b8c94d3411cd3a44efd88d7e99e83ba5c3ac6501db3ff07ae2543"
"""`AsbData.checksum` of the files in `CHECKSUMS`."""
