"""PromptArmor: a guard model is asked whether a result holds an injection, and what it quotes is cut out.

Rebuilt from arXiv 2507.15219 as it is quoted, and from two public reproductions; the authors' code was not
published. Departures and their reasons: docs/baselines/promptarmor.md.
"""

from baselines.promptarmor.armor_guard import PromptArmor

__all__ = ["PromptArmor"]
