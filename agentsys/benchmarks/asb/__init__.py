"""Agent Security Bench: role-playing agents with simulated tools, attacked through tools' results.

One AgentDojo suite per agent. The plan-then-steps conversation of the original is a model between the defense and the
real one (`planned_model`), so that every defense runs on this benchmark as on any other.

Source: arXiv 2410.02644 (ICLR 2025), repository agiresearch/ASB.
"""

from __future__ import annotations
