"""Spotlighting (Hines et al., arXiv 2403.14720): tool results are written so that their origin shows.

`marking` rewrites text and explains itself; `defense` applies it to a conversation.
"""

from baselines.spotlighting.defense import Spotlighting

__all__ = ["Spotlighting"]
