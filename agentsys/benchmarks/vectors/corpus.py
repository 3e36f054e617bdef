"""`Corpus`: the texts of the twelve vectors, read from `data/` and cut into two fixed halves and a rest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agentsys.benchmarks.vectors.hiding import apply_disguise

CORPUS_FOLDER = Path(__file__).parent / "data"
CARRIERS = "carriers"
FIRST_TEXTS = 20
"""Texts of each kind that the corpus began with."""
Form = Literal["plain", "paraphrased", "obfuscated", "embedded"]


class CorpusHalf(Enum):
    """Which part of the corpus: defenses may be tuned on one half and are judged on the other."""

    DEVELOPMENT = "development"
    HELD_OUT = "held_out"
    LATER = "later"
    """Written when the shipped defenses were finished, and never used to change them."""
    ALL = "all"


class CorpusText(BaseModel):
    """One attack variant or one look-alike, as it stands in a data file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(pattern=r"^[ab]\d\d$")
    """`a` and a number for attacks, `b` and a number for look-alikes; unique within the vector."""
    form: Form = "plain"
    hide: str | None = None
    """The disguise it wears (`hiding.DISGUISES`)."""
    carrier: str | None = Field(default=None, alias="in")
    """The kind of tool output it stands in; None: it is the whole output."""
    text: str
    """The words, undisguised."""

    @property
    def number(self) -> int:
        """Its place in the file, from 0: the number of its task."""
        return int(self.id[1:]) - 1

    @property
    def half(self) -> CorpusHalf:
        """Where it belongs: of the first twenty every second text is held out."""
        if self.number >= FIRST_TEXTS:
            return CorpusHalf.LATER
        return CorpusHalf.HELD_OUT if self.number % 2 else CorpusHalf.DEVELOPMENT

    @property
    def disguised_text(self) -> str:
        """The text as it appears."""
        return self.text if self.hide is None else apply_disguise(self.text, self.hide)

    @property
    def output(self) -> str:
        """The whole tool output with the text in it."""
        return self.disguised_text if self.carrier is None else fill_carrier(self.carrier, self.disguised_text)


class AttackCall(BaseModel):
    """The one call that carries out every attack of a vector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    args: dict[str, str]
    """The first tells the attack from anything else; `{text}` stands for the variant's own words."""

    def for_variant(self, text: CorpusText) -> AttackCall:
        """The call of one variant."""
        args = {name: value.replace("{text}", text.text) for name, value in self.args.items()}
        return AttackCall(tool=self.tool, args=args)


class AttackVector(BaseModel):
    """One of the twelve: what an attacker does, in many words, and what looks like it and is harmless."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    carried_out: AttackCall
    attacks: tuple[CorpusText, ...]
    look_alikes: tuple[CorpusText, ...]

    def select_half(self, half: CorpusHalf) -> tuple[Sequence[CorpusText], Sequence[CorpusText]]:
        """The attacks and the look-alikes of one half."""
        return _select_texts(self.attacks, half), _select_texts(self.look_alikes, half)


@dataclass(frozen=True)
class Corpus:
    """All vectors, in the order of the list above."""

    vectors: Mapping[str, AttackVector]
    digest: str
    """SHA-256, in hex, of the data files."""


VECTOR_NAMES = (
    "prompt_injection",
    "role_manipulation",
    "context_poisoning",
    "self_replication",
    "multi_agent_infection",
    "instruction_amplification",
    "prompt_extraction",
    "memory_dumping",
    "code_execution",
    "ssrf",
    "base64_payload",
    "unicode_obfuscation",
)


@lru_cache(maxsize=1)
def load_corpus() -> Corpus:
    """The corpus as it is shipped."""
    files = {name: (CORPUS_FOLDER / f"{name}.yaml").read_bytes() for name in (*VECTOR_NAMES, CARRIERS)}
    digest = hashlib.sha256(b"\0".join(files.values())).hexdigest()
    return Corpus({name: AttackVector.model_validate(yaml.safe_load(files[name])) for name in VECTOR_NAMES}, digest)


def fill_carrier(kind: str, text: str) -> str:
    """A tool output of this kind with the text in it.

    Raises:
        KeyError: If there is no such kind.
    """
    return _load_carriers()[kind].replace("{text}", text)


@lru_cache(maxsize=1)
def _load_carriers() -> dict[str, str]:
    return dict(yaml.safe_load((CORPUS_FOLDER / f"{CARRIERS}.yaml").read_text(encoding="utf-8")))


def _select_texts(texts: Sequence[CorpusText], half: CorpusHalf) -> Sequence[CorpusText]:
    return [text for text in texts if half is CorpusHalf.ALL or text.half is half]
