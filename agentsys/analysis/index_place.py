"""Where the index of a folder lies: beside the runs, or in the user's cache where that cannot be written."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

NAME = "index.parquet"


def place_of(root: Path) -> Path:
    """Where the index of a folder is written, and looked for first."""
    own = beside(root)
    folder = own.parent if own.parent.exists() else root
    return own if os.access(folder, os.W_OK) else _in_cache(root)


def beside(root: Path) -> Path:
    """In the folder that our store keeps for itself inside a log folder; hidden, so never read as a case."""
    return root / ".agentsys" / NAME


def _in_cache(root: Path) -> Path:
    """In the user's cache folder, under a name made of the folder's real path."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return Path(home) / "agentsys" / "index" / f"{name}.parquet"
