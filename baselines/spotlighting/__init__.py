"""Spotlighting (Hines et al., arXiv 2403.14720): tool results are written so that their origin shows."""

from baselines.spotlighting.defense import Spotlighting

__all__ = ["Spotlighting"]
