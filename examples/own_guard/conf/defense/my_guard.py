"""A guard that is a function: how sure it is that a text gives orders, from 0 to 1."""

from __future__ import annotations

ORDERS = ("ignore", "instead", "important message", "you must", "before you")


def score(text: str) -> float:
    """Count what orders are worded in."""
    return min(1.0, sum(order in text.lower() for order in ORDERS) / 2)
