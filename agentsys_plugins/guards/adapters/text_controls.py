"""Controls of the league: features of a text that guards may take for an injection, each as a guard."""

from __future__ import annotations


def measure_repetition(text: str) -> float:
    """The control `token_repetition`: the share of words that stood in the text before."""
    words = text.split()
    return 1 - len(set(words)) / len(words) if words else 0.0
