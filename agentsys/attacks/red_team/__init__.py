"""Attacks for red teams, which no table of the paper needs: this room adds their configs.

Their code lies beside it, where their configs' `_target_`s have it: `evolve/`, `forged/`, `encoded` with
`codes`, `cached` with `cache_files/`.
"""

from __future__ import annotations

from pathlib import Path

from agentsys.rooms import Extension

ROOM = Extension(configs=Path(__file__).parent / "configs")
