"""`InjectionBreaksEnvironment`: an injection with which the environment cannot be loaded."""

from __future__ import annotations

from agentsys.benchmarks.loading.double_quoted import find_breaking_character


class InjectionBreaksEnvironment(Exception):
    """The environment cannot be loaded with an injection. Raised before any model is asked.

    Args:
        suite: The suite whose environment it is.
        vector: The injection vector that holds the text.
        text: The text as the attack wrote it.
        position: Where in the text it breaks, from 0; None if no single character can be blamed.
        reason: What is wrong and the mend, in one line.
    """

    def __init__(self, suite: str, vector: str, text: str, position: int | None, reason: str) -> None:
        where = "" if position is None else f" at character {position} ({text[position]!a})"
        super().__init__(f"suite '{suite}', injection vector '{vector}'{where}: {reason}.")
        self.suite = suite
        self.vector = vector
        self.position = position
        self.character = None if position is None else text[position]


def build_folded_error(suite: str, vector: str, text: str, error: Exception) -> InjectionBreaksEnvironment:
    """The error for a text that broke AgentDojo's substitution with `error`."""
    position, reason = find_breaking_character(text) or (None, _one_line(error))
    mend = "change the attack's text or use benchmark.injection=exact"
    return InjectionBreaksEnvironment(suite, vector, text, position, f"{reason}; {mend}")


def build_exact_error(suite: str, vector: str, text: str, error: Exception) -> InjectionBreaksEnvironment:
    """The error for a text that the environment's types refuse as it is: half a surrogate pair, mostly."""
    position = next((index for index, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)
    reason = _one_line(error) if position is None else "half of a surrogate pair is not text"
    return InjectionBreaksEnvironment(suite, vector, text, position, f"{reason}; change the attack's text")


def _one_line(error: Exception) -> str:
    return ascii(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")[1:-1]
