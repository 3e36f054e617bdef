"""Attacks for red teams, which no table of the paper needs, and their configs; an optional part.

Texts from files (`cached_attack`), in codes (`encoded_attack`), from an evolving archive (`evolve_attack`),
and as forged conversations (`chat_injection`, `written_dialogue`).
"""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import Extension

ROOM = Extension(configs=Path(__file__).parent / "configs")
