"""Metrics: stored cases -> numbers with their intervals."""
