"""Agent Security Bench: role-playing agents with simulated tools, attacked through what tools return.

One AgentDojo suite per agent. The plan-then-steps conversation of the original is a model between
the defense and the real one (`planned_model`), so that every defense meets this benchmark as it meets any.

Source: arXiv 2410.02644 (ICLR 2025), repository agiresearch/ASB.
"""

from __future__ import annotations
