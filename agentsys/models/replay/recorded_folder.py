"""The folder of a pipeline's recorded runs: which one it is, and what it holds. Needs no benchmark."""

from __future__ import annotations

import hashlib
import os
from glob import escape
from pathlib import Path

from agentsys.errors import ConfigError, require_known_name


def find_pipeline_folder(name: str, traces: str | Path | None, pipeline: str | None) -> Path:
    """The one folder to replay from.

    Args:
        name: The model's name, for the message.
        traces: The folder of one pipeline's recorded runs, or one above it.
        pipeline: Name of the pipeline's folder, where `traces` holds several.

    Raises:
        ConfigError: If the folder is missing, holds no recorded runs, or holds several pipelines' and none
            is named.
    """
    if traces is None or str(traces) in ("", "???"):
        raise ConfigError(f"Model '{name}' needs the folder of the recorded runs: model.traces=FOLDER.")
    root = Path(traces).expanduser()
    if not root.is_dir():
        mend = "unpack it first (tar -xf)" if root.is_file() else "check the path"
        raise ConfigError(f"model.traces={root}: {'not a' if root.is_file() else 'no such'} folder; {mend}.")
    found = find_pipeline_folders(root.resolve())
    if not found:
        raise ConfigError(
            f"model.traces={root}: no recorded runs there"
            " (looked for PIPELINE/SUITE/USER_TASK/ATTACK/INJECTION.json); name the folder they are in."
        )
    names = sorted({folder.name for folder in found})
    if pipeline is not None:
        require_known_name("pipeline", pipeline, names)
    chosen = [folder for folder in found if pipeline in (None, folder.name)]
    if len(chosen) > 1:
        mend = "give model.traces=FOLDER of one" if pipeline else "name one: model.pipeline=NAME"
        raise ConfigError(
            f"model.traces={root} holds several pipelines ({', '.join(map(str, chosen))}); {mend}."
        )
    return chosen[0]


def digest_records(folder: Path, attack: str) -> str:
    """A digest of the recorded runs of one attack in a pipeline's folder: names and contents.

    Args:
        folder: The pipeline's, which holds `SUITE/USER_TASK/ATTACK/INJECTION.json`.
        attack: The attack's label; `none` for benign runs.
    """
    digest = hashlib.sha256()
    for path in sorted(folder.glob(f"*/*/{escape(attack)}/*.json")):
        try:
            content = path.read_bytes()
        except OSError:  # that case says so itself
            content = b""
        digest.update(path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape") + b"\0")
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def find_pipeline_folders(root: Path) -> list[Path]:
    """The folders at or below `root` that hold `<suite>/<task>/<attack>/<injection>.json`, sorted.

    A folder known to be one is not searched further, so the cost does not grow with the number of records.
    """
    found: set[Path] = set()
    for folder, subfolders, files in os.walk(root):
        here = Path(folder)
        if any(parent in found for parent in (here, *here.parents)):
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        if any(name.endswith(".json") for name in files):
            _add_pipeline(found, here, root)
    return sorted(found)


def _add_pipeline(found: set[Path], attack_folder: Path, root: Path) -> None:
    """Count `<pipeline>` of `<pipeline>/<suite>/<task>/<attack>`, unless it is above `root`."""
    if len(attack_folder.relative_to(root).parts) >= 3:
        found.add(attack_folder.parents[2])
