"""Where the index of a folder lies: beside runs of ours; in the user's cache for anyone else's."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from platformdirs import user_cache_path

NAME = "index.parquet"
OWN = ".agentsys"
"""The folder that our store keeps for itself inside a log folder; hidden, so never read as a case."""


def place_of(root: Path) -> Path:
    """Where the index of a folder is written, and looked for first.

    A folder that is not ours is never written to.
    """
    own = beside(root)
    return own if own.parent.is_dir() and os.access(own.parent, os.W_OK) else _in_cache(root)


def beside(root: Path) -> Path:
    """Its place in a log folder of ours."""
    return root / OWN / NAME


def _in_cache(root: Path) -> Path:
    """In the user's cache folder (`XDG_CACHE_HOME` where it is set), under a name made of the real path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return user_cache_path("agentsys") / "index" / f"{name}.parquet"
