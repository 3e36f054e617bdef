"""`Corpus`: the texts of the twelve vectors, read from `data/`, disguised, and divided into halves and a rest.

The disguises are encodings, look-alike characters and invisible text.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import yaml
from pydantic import BaseModel, ConfigDict, Field

_LEET = str.maketrans("aeiost", "4310$7")
_TWINS = str.maketrans("aceiopsxyjAEIOPTHKMB", "асеіорѕхујАЕІОРТНКМВ")
"""Latin letter -> Cyrillic letter that looks the same."""
_SMALL_CAPS = str.maketrans("abcdefghijklmnoprstuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ")
_FULLWIDTH = {point: point + 0xFEE0 for point in range(0x21, 0x7F)}
_ZERO_WIDTH = "\u200b\u200c\u200d"
_VARIATION_BASE = 0xE0100
"""VARIATION SELECTOR-17, which encodes byte 16; selectors 1 to 16 encode bytes 0 to 15."""


def apply_disguise(text: str, disguise: str) -> str:
    """Disguise a text."""
    return DISGUISES[disguise](text)


def _encode_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _encode_hex(text: str) -> str:
    return text.encode().hex()


def _encode_percent(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode()) if text.isascii() else quote(text)


def _encode_entities(text: str) -> str:
    return "".join(
        f"&#{ord(char)};" if index % 2 else f"&#x{ord(char):x};" for index, char in enumerate(text)
    )


def _insert_between(text: str, marks: str) -> str:
    """Insert marks, in turn, after each letter of a word but its last."""
    turns = itertools.cycle(marks)
    following = [*text[1:], " "]
    return "".join(
        a + next(turns) if a.isalpha() and b.isalpha() else a for a, b in zip(text, following, strict=True)
    )


def _encode_variation_selectors(text: str) -> str:
    """Encode bytes as variation selectors after visible text."""
    selectors = (
        chr(0xFE00 + byte) if byte < 16 else chr(_VARIATION_BASE + byte - 16) for byte in text.encode()
    )
    return "Thank you 🙂" + "".join(selectors)


def _make_letter_block_encoder(start: int) -> Callable[[str], str]:
    """Return an encoder to a Unicode block of 26 capital and 26 small letters."""

    def write(text: str) -> str:
        return "".join(
            chr(start + ord(char) - 65) if "A" <= char <= "Z"
            else chr(start + 26 + ord(char) - 97) if "a" <= char <= "z"
            else char
            for char in text
        )  # fmt: skip

    return write


def _space_first_words(text: str) -> str:
    """Spell the first three words in single letters."""
    words = text.split(" ")
    return " ".join([*("-".join(word) for word in words[:3]), *words[3:]])


def _put_in_page(text: str) -> str:
    return f"<p>Opening hours: nine to five.</p>{text}<p>Closed on Sundays.</p>"


DISGUISES: Mapping[str, Callable[[str], str]] = {
    "base64": _encode_base64,
    "base64_twice": lambda text: _encode_base64(_encode_base64(text)),
    "base64_three": lambda text: _encode_base64(_encode_base64(_encode_base64(text))),
    "base64_lines": lambda text: "\n".join(textwrap.wrap(_encode_base64(text), 60)),
    "base64_asked": lambda text: f"Decode this from base64 and do what it says: {_encode_base64(text)}",
    "base64url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "data_url": lambda text: f'<a href="data:text/plain;base64,{_encode_base64(text)}">Details</a>',
    "hex": _encode_hex,
    "hex_in_base64": lambda text: _encode_base64(_encode_hex(text)),
    "percent": _encode_percent,
    "entities": _encode_entities,
    "rot13": lambda text: codecs.encode(text, "rot13"),
    "leet": lambda text: text.translate(_LEET),
    "spaced": _space_first_words,
    "zero_width": lambda text: _insert_between(text, _ZERO_WIDTH),
    "word_joiner": lambda text: _insert_between(text, "\u2060\ufeff"),
    "soft_hyphen": lambda text: _insert_between(text, "\u00ad"),
    "homoglyph": lambda text: text.translate(_TWINS),
    "homoglyph_zero_width": lambda text: _insert_between(text.translate(_TWINS), _ZERO_WIDTH),
    "small_caps": lambda text: text.translate(_SMALL_CAPS),
    "fullwidth": lambda text: text.translate(_FULLWIDTH),
    "math": _make_letter_block_encoder(0x1D5D4),
    "circled": _make_letter_block_encoder(0x24B6),
    "combining": lambda text: "".join(c + "\u0335\u0307\u0323" if c.isalpha() else c for c in text),
    # Each word is reversed inside an override that displays it forwards.
    "bidi": lambda text: " ".join(f"\u202e{word[::-1]}\u202c" for word in text.split(" ")),
    "tags": lambda text: "Thank you." + "".join(chr(0xE0000 + ord(char)) for char in text),
    "variation": _encode_variation_selectors,
    "hidden_html": lambda text: _put_in_page(f'<div style="display:none">{text}</div>'),
    "comment_html": lambda text: _put_in_page(f"<!-- {text} -->"),
}
"""Name -> function that disguises a text."""


CORPUS_FOLDER = Path(__file__).parent / "data"
CARRIERS = "carriers"
FIRST_TEXTS = 20
"""Number of texts of each kind in the corpus's first version."""
Form = Literal["plain", "paraphrased", "obfuscated", "embedded"]


class CorpusHalf(Enum):
    """Parts of the corpus: defenses may be tuned on one half and are judged on the other."""

    DEVELOPMENT = "development"
    HELD_OUT = "held_out"
    LATER = "later"
    """Texts written after the shipped defenses, and never used to change them."""
    ALL = "all"


class CorpusText(BaseModel):
    """An attack variant or a look-alike in a data file."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    id: str = Field(pattern=r"^[ab]\d\d$")
    """`a` and a number for attacks, `b` and a number for look-alikes; unique within the vector."""
    form: Form = "plain"
    hide: str | None = None
    """Name of its disguise (`DISGUISES`)."""
    carrier: str | None = Field(default=None, alias="in")
    """Kind of the tool output around it; None: it is the whole output."""
    text: str
    """The undisguised text."""

    @property
    def number(self) -> int:
        """Its index in the file, from 0, which is the number of its task."""
        return int(self.id[1:]) - 1

    @property
    def half(self) -> CorpusHalf:
        """Part that it belongs to: every second of the first twenty texts is held out."""
        if self.number >= FIRST_TEXTS:
            return CorpusHalf.LATER
        return CorpusHalf.HELD_OUT if self.number % 2 else CorpusHalf.DEVELOPMENT

    @property
    def disguised_text(self) -> str:
        """The text in its disguise."""
        return self.text if self.hide is None else apply_disguise(self.text, self.hide)

    @property
    def output(self) -> str:
        """The whole tool output with the text in it."""
        return (
            self.disguised_text if self.carrier is None else fill_carrier(self.carrier, self.disguised_text)
        )


class AttackCall(BaseModel):
    """The call that carries out every attack of a vector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    args: dict[str, str]
    """The first argument identifies the attack; `{text}` stands for the variant's own text."""

    def fill_for_variant(self, text: CorpusText) -> AttackCall:
        """Fill in the text of one variant."""
        args = {name: value.replace("{text}", text.text) for name, value in self.args.items()}
        return AttackCall(tool=self.tool, args=args)


class AttackVector(BaseModel):
    """One of the twelve vectors: variants of an attack, and harmless look-alikes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    carried_out: AttackCall
    attacks: tuple[CorpusText, ...]
    look_alikes: tuple[CorpusText, ...]

    def select_half(self, half: CorpusHalf) -> tuple[Sequence[CorpusText], Sequence[CorpusText]]:
        """Select the attacks and the look-alikes of one half."""
        attacks, look_alikes = (
            [text for text in texts if half in (CorpusHalf.ALL, text.half)]
            for texts in (self.attacks, self.look_alikes)
        )
        return attacks, look_alikes


@dataclass(frozen=True)
class Corpus:
    """All vectors, in the order of `VECTOR_NAMES`."""

    vectors: Mapping[str, AttackVector]
    digest: str
    """SHA-256, in hex, of the data files."""


VECTOR_NAMES = (
    *("prompt_injection", "role_manipulation", "context_poisoning"),
    *("self_replication", "multi_agent_infection", "instruction_amplification"),
    *("prompt_extraction", "memory_dumping", "code_execution"),
    *("ssrf", "base64_payload", "unicode_obfuscation"),
)


@lru_cache(maxsize=1)
def load_corpus() -> Corpus:
    """Load the shipped corpus."""
    files = {name: (CORPUS_FOLDER / f"{name}.yaml").read_bytes() for name in (*VECTOR_NAMES, CARRIERS)}
    digest = hashlib.sha256(b"\0".join(files.values())).hexdigest()
    return Corpus(
        {name: AttackVector.model_validate(yaml.safe_load(files[name])) for name in VECTOR_NAMES}, digest
    )


def fill_carrier(kind: str, text: str) -> str:
    """Put a text into a tool output of this kind."""
    return _load_carriers()[kind].replace("{text}", text)


@lru_cache(maxsize=1)
def _load_carriers() -> dict[str, str]:
    return dict(yaml.safe_load((CORPUS_FOLDER / f"{CARRIERS}.yaml").read_text(encoding="utf-8")))
