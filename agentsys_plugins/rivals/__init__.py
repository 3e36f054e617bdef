"""Defenses that came after the paper, beside which AgentSys is measured; and stacks of several defenses."""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import Extension

ROOM = Extension(configs=Path(__file__).parent / "configs")
