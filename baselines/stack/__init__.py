"""Stacks: several defenses at once, each at its place.

Filters at the tool border can be put around any agent; defenses that add to a plain tool loop can share one.
What cannot be combined is refused with the reason. See docs/baselines/stacks.md.
"""

from baselines.stack.defense import Stack

__all__ = ["Stack"]
