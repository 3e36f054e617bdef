"""What of a text guards may take for an injection, as guards of their own: controls of the league."""

from __future__ import annotations


def measure_length(text: str) -> float:
    """The control `length_alone`: the number of characters."""
    return float(len(text))


def measure_repetition(text: str) -> float:
    """The control `token_repetition`: the share of words that stood in the text before."""
    words = text.split()
    return 1 - len(set(words)) / len(words) if words else 0.0
