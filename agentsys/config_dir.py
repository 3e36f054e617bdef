"""Where the shipped Hydra configs are: inside the wheel, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def shipped_config_dir() -> Path:
    """The folder with the groups model/, defense/, attack/, benchmark/, executor/ and experiment/."""
    in_wheel = _PACKAGE / "configs"
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "configs"
