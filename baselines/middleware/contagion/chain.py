"""`Chain`: which stages the same content has passed, by hashes of its sentences."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

_SENTENCE = re.compile(r"[^.!?\n]+")
_WORD = re.compile(r"\w+")
FEWEST_WORDS = 5
"""Words of a sentence that is followed; shorter ones recur by chance."""


@dataclass
class Chain:
    """The way of every sentence through agents and stages.

    `links` is a hash chain: each entry hashes the one before, the stage and the content, so that a record
    of it shows any later change.
    """

    seen: dict[str, list[str]] = field(default_factory=dict)
    """Hash of a sentence -> stages, in order, each once."""
    links: list[str] = field(default_factory=list)

    def pass_through(self, text: str, stage: str) -> tuple[str, ...]:
        """Note that a text is at a stage.

        Returns:
            The longest way that one of its sentences has come so far, this stage included.
        """
        longest: list[str] = []
        for sentence in sentences(text):
            way = self.seen.setdefault(_hash(sentence), [])
            if stage not in way:
                way.append(stage)
            longest = max(longest, way, key=len)
        before = self.links[-1] if self.links else ""
        self.links.append(_hash(f"{before}\n{stage}\n{text}"))
        return tuple(longest)


def sentences(text: str) -> list[str]:
    """A text's sentences of some length, as words in small letters with single spaces."""
    found = [" ".join(_WORD.findall(one.casefold())) for one in _SENTENCE.findall(text)]
    return [one for one in found if one.count(" ") >= FEWEST_WORDS - 1]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
