"""`Artefact`: the texts that a search found, as a file that replays without an attacker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentsys.errors import ConfigError


class _ArtefactPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArtefactEntry(_ArtefactPart):
    """The result of one search."""

    suite: str
    user_task: str | None
    """None: the text stands for every user task of the suite (mode `transfer`)."""
    injection_task: str
    text: str = Field(min_length=1)
    """Goes into every injection vector of the user task."""
    success: bool
    """Whether the injection task was carried out with it, where it was searched."""
    attempts: int
    """Attempts the search made, refused candidates included."""
    tried: int | None = None
    """Texts that were really run; None in files of older searches."""
    homes: tuple[str, ...] = ()
    """The user tasks it was searched on, in mode `transfer`."""
    variant: int = Field(default=0, ge=0)
    """Which of several texts for the same tasks, from 0, the best."""
    score: int | None = None
    """The judge's, 1 to 10; None in files of one text per search."""
    attempt: int | None = None
    """The number of the attempt with which it was tried first, likewise."""

    @model_validator(mode="before")
    @classmethod
    def _drop_pairs(cls, entry: object) -> object:
        """Pass over what earlier versions wrote into files of format 2: empty but for texts of suites."""
        if isinstance(entry, dict):
            return {name: value for name, value in entry.items() if name != "pairs"}
        return entry


class Artefact(_ArtefactPart):
    """The searches of one attack against one agent (docs/attacks.md has the format in words)."""

    format: Literal[1, 2] = 1
    """2: with several texts for the same tasks."""
    attack: str
    """The attack's label in results, e.g. `pair-transfer`."""
    mode: str
    """`transfer` or `per_case`."""
    benchmark: str
    version: str
    model: str
    defense: str
    entries: tuple[ArtefactEntry, ...]

    @model_validator(mode="after")
    def _check_one_text_each(self) -> Artefact:
        """Refuse two texts for the same tasks: nobody could tell which of them a case was run with."""
        counted = Counter(_entry_key(entry) for entry in self.entries)
        twice = [key for key, times in counted.items() if times > 1]
        if twice:
            raise ValueError(f"two texts for {' '.join(twice[0][:3]).strip()!a}; keep one")
        return self

    @property
    def variants(self) -> tuple[int, ...]:
        """The numbers that texts have."""
        return tuple(sorted({entry.variant for entry in self.entries}))

    def find_entry(
        self, suite: str, user_task: str, injection_task: str, variant: int = 0
    ) -> ArtefactEntry | None:
        """The entry for one pair of tasks: its own, else the one for every user task."""
        numbered = (e for e in self.entries if e.suite == suite and e.variant == variant)
        fits = [e for e in numbered if e.injection_task == injection_task]
        own = (e for e in fits if e.user_task == user_task)
        return next(own, None) or next((e for e in fits if e.user_task is None), None)

    def with_search(self, entries: Sequence[ArtefactEntry]) -> Artefact:
        """A copy with what one search found, in place of what an older one found for the same tasks."""
        tasks = {_entry_key(entry)[:3] for entry in entries}
        kept = {_entry_key(old): old for old in self.entries if _entry_key(old)[:3] not in tasks}
        kept |= {_entry_key(entry): entry for entry in entries}
        several = any(entry.variant for entry in kept.values())
        listed = tuple(kept[key] for key in sorted(kept))
        return self.model_copy(update={"format": 2 if several else 1, "entries": listed})

    def as_json(self) -> bytes:
        """The file's content. What only files of format 2 have stands in these alone."""
        listed = self.model_dump()
        if self.format == 1:
            listed["entries"] = [
                {name: value for name, value in entry.items() if name not in _FORMAT_2_KEYS}
                for entry in listed["entries"]
            ]
        return json.dumps(listed, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")


_FORMAT_2_KEYS = ("variant", "score", "attempt")


def _entry_key(entry: ArtefactEntry) -> tuple[str, str, str, int]:
    return entry.suite, entry.injection_task, entry.user_task or "", entry.variant


def read_artefact(path: Path) -> Artefact:
    """Read a file that a search wrote.

    Raises:
        ConfigError: If it is not there or is no artefact; the line names the field that is wrong.
    """
    try:
        text = path.read_bytes().decode("utf-8", "surrogatepass")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. {_ARTEFACT_HINT}") from None
    try:
        return Artefact.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        fault = ": ".join(part for part in (".".join(map(str, first["loc"])), first["msg"]) if part)
        raise ConfigError(f"{path} is no artefact of a search: {fault}. {_ARTEFACT_HINT}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}. {_ARTEFACT_HINT}") from None


_ARTEFACT_HINT = "A search writes its artefact to LOGDIR/.agentsys/searches/ and `agentsys run` prints where."
