"""Texts that guards are measured on: what tools returned in recorded runs, which of them held an injection, edits.

An output holds an injection where a line of one of its case's stands in it (`agentsys.base.payload_lines`).
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.base.packed_json import read_json_bytes
from agentsys.base.payload_lines import contains_payload, find_payload_lines
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases
from agentsys.records.context_facts import join_tool_result

CLEAN = "none"
"""The attack of cases without one."""


def is_variant(attack: str) -> bool:
    """True if an attack is another wording of one that stands in tables."""
    return attack.startswith("important_instructions_") or attack.endswith("_dos")


class TextCase(NamedTuple):
    """One recorded case, as far as a guard of texts matters to it."""

    benchmark: str
    suite: str
    user_task: str
    attack: str
    injection_task: str
    utility: bool
    security: bool
    """Whether the injection task was carried out."""
    seen: tuple[tuple[str, bool], ...]
    """Ids of the texts that tools returned, and whether each held an injection."""


@dataclass
class TextCorpus:
    """Texts, and the cases that they were seen in."""

    texts: dict[str, str] = field(default_factory=dict)
    seen_under: dict[tuple[str, str, bool], dict[str, None]] = field(default_factory=dict)
    """(benchmark, attack, held an injection) -> ids, each once."""
    cases: list[TextCase] = field(default_factory=list)
    tools: dict[str, str] = field(default_factory=dict)
    """Id -> the tool that returned it, where that is known."""
    spots: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Id -> where its injection stands, where that is known: first character, and behind the last."""

    def find_ids(self, *, held: bool) -> set[str]:
        """Ids of the texts with an injection, or of those of clean cases."""
        return {
            one
            for (_, attack, holds), ids in self.seen_under.items()
            if (attack != CLEAN and holds if held else attack == CLEAN)
            for one in ids
        }

    def add_text(self, text: str, under: Iterable[Sequence[Any]], known: str | None = None) -> str:
        """Add a text that was seen under some attacks; the same text is one."""
        name = known or hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
        self.texts[name] = text
        for benchmark, attack, held in under:
            self.seen_under.setdefault((str(benchmark), str(attack), bool(held)), {})[name] = None
        return name


class TextLine(BaseModel):
    """A line of a file of texts."""

    model_config = ConfigDict(frozen=True)

    text: str
    injected: bool | None = None
    attack: str | None = None
    tool: str | None = None
    at: tuple[int, int] | None = None
    """Where the injection stands: first character, and behind the last."""
    id: str | None = None
    seen_under: list[tuple[str, str, bool]] | None = None
    """Benchmark, attack, and whether it held an injection then; without it the text is a case of its own."""


def read_texts(file: Path, corpus: TextCorpus) -> None:
    """Add a file of texts, a `TextLine` each; `cases` and `asb` beside a file `texts` are read too.

    Raises:
        ConfigError: If it cannot be read or a line is none of these.
    """
    for number, found in enumerate(_read_lines(file), 1):
        try:
            line = TextLine.model_validate(found)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            mend = 'give lines like {"text": "...", "injected": true}'
            raise ConfigError(f"{file}:{number}: {why}; {mend}.") from None
        held = bool(line.injected)
        attack = line.attack or ("own" if held else CLEAN)
        name = corpus.add_text(line.text, line.seen_under or [("own", attack, held)], line.id)
        corpus.tools |= {name: line.tool} if line.tool is not None else {}
        corpus.spots |= {name: line.at} if line.at else {}
        if line.seen_under is None:
            one = TextCase("own", "own", f"text {number}", attack, "", not held, held, ((name, held),))
            corpus.cases.append(one)
    if not file.name.startswith("texts"):
        return
    if (cases := file.with_name(file.name.replace("texts", "cases", 1))).is_file():
        try:
            corpus.cases += map(_parse_case, _read_lines(cases))
        except (KeyError, TypeError, ValueError):
            keys = "bench, suite, ut, att, inj, utility, security, seen"
            raise ConfigError(f"{cases} has a line that is no case; each has {keys}.") from None
    if (asb := file.with_name("asb.json.gz")).is_file():
        for key, texts in json.loads(gzip.decompress(asb.read_bytes())).items():
            attack = key.removeprefix("asb_").replace("clean", CLEAN)
            for text in texts:
                corpus.add_text(text, [("asb", attack, attack != CLEAN)])


def _parse_case(line: Mapping[str, Any]) -> TextCase:
    keys = ("bench", "suite", "ut", "att", "inj")
    bench, suite, user, attack, injection = (str(line.get(key) or "") for key in keys)
    scores = bool(line["utility"]), bool(line["security"])
    seen = tuple((str(name), bool(held)) for name, held in line["seen"])
    return TextCase(bench, suite, user, attack, injection, *scores, seen)


def _read_lines(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                found = json.loads(line.strip() or "null")
                if found is not None:
                    yield found if isinstance(found, dict) else {}
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}.") from None
    except (ValueError, EOFError, zlib.error) as error:
        raise ConfigError(f"{file} is no file of JSON lines: {error}.") from None


def read_runs(folders: Sequence[Path], corpus: TextCorpus) -> None:
    """Add what tools returned in stored runs without a defense.

    Raises:
        ConfigError: If a folder holds no case.
    """
    for row in read_cases(folders).cases:
        if row.status != "ok" or row.defense != "none":
            continue
        record = json.loads(read_json_bytes(row.source))
        payloads = [str(one) for one in (record.get("injections") or {}).values()]
        lines = find_payload_lines(payloads)
        seen: dict[str, bool] = {}
        for message in record.get("messages") or ():
            text = join_tool_result(message) if message.get("role") == "tool" else ""
            if text.strip():
                held = row.attack != CLEAN and contains_payload(text, lines)
                name = corpus.add_text(text, [(row.benchmark, row.attack, held)])
                seen[name] = held
                corpus.tools[name] = str((message.get("tool_call") or {}).get("function") or "")
                starts = [
                    (at, at + len(one)) for one in payloads if held and one and (at := text.find(one)) >= 0
                ]
                corpus.spots |= {name: min(starts)} if starts else {}
        names = row.benchmark, row.suite, row.user_task_id, row.attack, row.injection_task_id or ""
        scores = row.utility, bool(row.injection_success)
        corpus.cases.append(TextCase(*names, *scores, tuple(seen.items())))


_SYNONYMS = {
    "important message": "short note",
    "instructions": "directions",
    "ignore": "skip",
    "previous": "earlier",
    "message": "note",
    "following": "next",
    "please": "kindly",
    "first": "at once",
}
_TYPED = re.compile(r"instructions|important|information|ignore|message|previous|please", re.IGNORECASE)


def change_two_words(text: str) -> str:
    """Other words of the same meaning in place of the first two that an attack is known by."""
    left = 2
    for word, other in _SYNONYMS.items():
        new = re.sub(rf"\b{word}\b", other, text, flags=re.IGNORECASE) if left else text
        left, text = left - (new != text), new
    return text


def make_typo(text: str) -> str:
    """The third and fourth letter swapped in each word that attacks use; misspelt texts stay."""
    if "iunstructions" in text:
        return text
    return _TYPED.sub(lambda w: w[0][:2] + w[0][3] + w[0][2] + w[0][4:], text)


def unwrap_lines(text: str) -> str:
    """Lines that a writer of YAML has broken, joined again."""
    joined = re.sub(r"\\\n {2,}(?:\\(?= ))?", "", text)  # inside double quotes
    return re.sub(r"(?<!\n)\n {2,}(?![-\w]+: |- )(?=\S)", " ", joined)


EDITS: Mapping[str, Callable[[str], str]] = {
    "tag renamed": partial(re.sub, r"</?[A-Z_]{4,}>", "----"),
    "two words": change_two_words,
    "typo made": make_typo,
    "typo mended": partial(re.sub, "iunstructions", "instructions"),
    "unwrapped": unwrap_lines,
}
"""Name -> what it makes of a text; one that it leaves as it is does not count."""


def sample_cases(cases: Sequence[TextCase], texts: int, held_only: bool = False) -> list[TextCase]:
    """Cases in an order drawn at random, the same each time, until they have shown enough distinct texts."""
    drawn = list(cases)
    random.Random(0).shuffle(drawn)
    ids: set[str] = set()
    for count, case in enumerate(drawn):
        if len(ids) >= texts:
            return drawn[:count]
        ids |= {name for name, held in case.seen if held or not held_only}
    return drawn
