"""Folders that are no run's: the shipped Hydra configs, those of rooms, and the user's."""

from __future__ import annotations

import os
from pathlib import Path

from agentsys.rooms import load_extensions

_PACKAGE = Path(__file__).parent


def shipped_config_dir() -> Path:
    """The folder with the groups model/, defense/, attack/, benchmark/, executor/ and experiment/.

    It lies inside the wheel, or at the top of a checkout.
    """
    in_wheel = _PACKAGE / "configs"
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "configs"


def shipped_config_dirs() -> list[Path]:
    """The same folder and those of the rooms that are installed."""
    return [shipped_config_dir(), *(room.configs for room in load_extensions() if room.configs is not None)]


def user_data_folder() -> Path:
    """The user's folder (XDG) for what was fetched."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification has relative paths ignored.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return root / "agentsys"
