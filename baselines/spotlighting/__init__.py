"""Spotlighting (Hines et al., arXiv 2403.14720): tool results are written so that their origin shows.

`marking` rewrites text and explains itself, `elements` apply it to a conversation, `defense`
puts the agent together.
"""

from baselines.spotlighting.defense import Spotlighting

__all__ = ["Spotlighting"]
