"""`PhraseDefense`: a toy detector that looks for tell-tale wordings. No published defense, and no good one.

It needs no model, so it shows offline what the machinery of `protectai` and `piguard` does, and how to plug
in a detector of one's own. Anyone who words an injection differently passes it; never put it in a comparison.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentsys.errors import ConfigError
from baselines.detectors.defense import DetectorDefense

PATTERNS = (
    r"\bignore\b.{0,60}\binstructions?\b",
    r"\bdisregard\b.{0,60}\b(?:instructions?|above|earlier|previous)\b",
    r"\bimportant (?:message|instruction)s?\b",
)
"""Regular expressions, any case."""


class PhraseDetector:
    """Says 1.0 of a text in which one of the patterns (without regard to case) stands, else 0.0.

    Raises:
        ConfigError: If one of them is no regular expression.
    """

    name = "phrases"

    def __init__(self, patterns: Sequence[str] = PATTERNS) -> None:
        try:
            self._patterns = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
        except re.error as error:
            raise ConfigError(f"phrase_detector: {error.pattern!r} is no pattern: {error}.") from None

    def score(self, texts: Sequence[str]) -> list[float]:
        """1.0 or 0.0 per text."""
        return [float(any(pattern.search(text) for pattern in self._patterns)) for text in texts]


class PhraseDefense(DetectorDefense):
    """The plain agent with a `PhraseDetector` between tools and model.

    Args:
        patterns: Its patterns; None: the ones above.
    """

    def __init__(self, patterns: Sequence[str] | None = None) -> None:
        detector = PhraseDetector(PATTERNS if patterns is None else patterns)
        super().__init__("phrase_detector", lambda: detector)

    @property
    def detector_description(self) -> str:
        """A list of wordings."""
        return "a short list of tell-tale wordings (regular expressions, 1 where one of them stands, else 0)"
