"""`SearchOptions` and `Artefact`: the options of attacks that search for texts, and the file of their results.

An artefact holds the texts of searches, which can be replayed without an attacker.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agentsys.errors import ConfigError


class _ArtefactPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArtefactEntry(_ArtefactPart):
    """The result of one search."""

    suite: str
    user_task: str | None
    """None: the text is for every user task of the suite (mode `transfer`)."""
    injection_task: str
    text: str = Field(min_length=1)
    """The text for every injection vector of the user task."""
    success: bool
    """True if the injection task was carried out with it in the search."""
    attempts: int
    """Number of attempts of the search, refused candidates included."""
    tried: int | None = None
    """Number of texts that were run; None in files of older searches."""
    homes: tuple[str, ...] = ()
    """The user tasks of the search, in mode `transfer`."""
    variant: int = Field(default=0, ge=0)
    """Rank among several texts for the same tasks, from 0, the best."""
    score: int | None = None
    """The judge's score, 1 to 10; None in files with one text per search."""
    attempt: int | None = None
    """Number of the attempt that first tried it; None in files with one text per search."""

    @model_validator(mode="before")
    @classmethod
    def _drop_pairs(cls, entry: object) -> object:
        """Ignore the key `pairs`, which earlier versions wrote into files of format 2."""
        if isinstance(entry, dict):
            return {name: value for name, value in entry.items() if name != "pairs"}
        return entry


class Artefact(_ArtefactPart):
    """The searches of one attack against one agent (docs/attacks.md has the format in words)."""

    format: Literal[1, 2] = 1
    """2: there are several texts for the same tasks."""
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
        """Refuse two texts for the same tasks and variant, as the text of a case would be ambiguous."""
        twice = [key for key, times in Counter(map(_make_entry_key, self.entries)).items() if times > 1]
        if twice:
            raise ValueError(f"two texts for {' '.join(twice[0][:3]).strip()!a}; keep one")
        return self

    @property
    def variants(self) -> tuple[int, ...]:
        """The variant numbers of all texts."""
        return tuple(sorted({entry.variant for entry in self.entries}))

    def find_entry(
        self, suite: str, user_task: str, injection_task: str, variant: int = 0
    ) -> ArtefactEntry | None:
        """Find the entry for one pair of tasks: its own, else the one for every user task."""
        fits = {
            e.user_task: e
            for e in self.entries
            if (e.suite, e.injection_task, e.variant) == (suite, injection_task, variant)
        }
        return fits.get(user_task) or fits.get(None)

    def with_search(self, entries: Sequence[ArtefactEntry]) -> Artefact:
        """Copy the artefact with one search's entries, which replace older ones for the same tasks."""
        tasks = {_make_entry_key(entry)[:3] for entry in entries}
        others = [old for old in self.entries if _make_entry_key(old)[:3] not in tasks]
        listed = tuple(sorted([*others, *entries], key=_make_entry_key))
        several = any(entry.variant for entry in listed)
        return self.model_copy(update={"format": 2 if several else 1, "entries": listed})

    def as_json(self) -> bytes:
        """Format the file's content; keys of format 2 are left out of format 1."""
        listed = self.model_dump()
        if self.format == 1:
            listed["entries"] = [
                {name: value for name, value in entry.items() if name not in _FORMAT_2_KEYS}
                for entry in listed["entries"]
            ]
        return json.dumps(listed, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")


_FORMAT_2_KEYS = ("variant", "score", "attempt")


def _make_entry_key(entry: ArtefactEntry) -> tuple[str, str, str, int]:
    return entry.suite, entry.injection_task, entry.user_task or "", entry.variant


def read_artefact(path: Path) -> Artefact:
    """Read a file that a search wrote.

    Raises:
        ConfigError: If it cannot be read or is no artefact; the message names the wrong field.
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


TRANSFER, PER_CASE = "transfer", "per_case"


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Checked options of attacks that search."""

    mode: Literal["transfer", "per_case"] = "transfer"
    """`transfer`: one search per injection task; `per_case`: one per case."""
    knowledge: str = "task"
    """The attacker's knowledge of the case: `none`, `task` or `full` (see `KnowledgeLevel`)."""
    feedback: str = "blackbox"
    """The attacker's feedback on its attempts: `blackbox` or `defense_aware`."""
    knowledge_file: str | None = None
    """A text file shown in place of the defense's description; None: the description."""
    attacker: str | None = None
    """Name of the YAML of the attacker's model; None: the run's own model."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """The attacker's temperature, from 0.0 to 2.0."""
    on_topic: Literal["model", "none"] = "none"
    """`model`: candidates that a model finds off topic are not tried; `none`: all are tried."""
    judge: Literal["calls", "model"] = "calls"
    """Source of scores below a success: the agent's `calls`, or a `model`."""
    search_on: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of user tasks that each candidate is tried on in mode `transfer`."""
    seed: int | None = None
    """Seed for the order of the attacker's strategies and for ties; None: 0."""
    artefact: str | None = None
    """File of an earlier search, whose texts are used without searching; None: search."""
    variant: int | None = None
    """Rank of the artefact's text for the same tasks, from 0; None: the best, 0."""
    save_all: bool = False
    """True: the artefact keeps every distinct text that was tried, best first; False: only the best."""

    def __post_init__(self) -> None:
        if self.variant is not None and self.artefact is None:
            raise ConfigError("attack.variant chooses among the texts of attack.artefact; give both.")

    def read_knowledge_file(self) -> str | None:
        """Read the text of `knowledge_file`; None without one.

        Raises:
            ConfigError: If the file cannot be read.
        """
        if self.knowledge_file is None:
            return None
        file = Path(self.knowledge_file)
        try:
            return file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"attack.knowledge_file {file} cannot be read: {error}. Give a text file in UTF-8."
            ) from None

    def load_artefact(self, name: str) -> Artefact | None:
        """Load the artefact; None without one. Results are named after the attack that found its texts.

        Raises:
            ConfigError: If it cannot be read, or another attack made it.
        """
        if self.artefact is None:
            return None
        artefact = read_artefact(Path(self.artefact))
        if artefact.attack.split("+")[0] != name:
            raise ConfigError(
                f"attack.artefact {self.artefact} holds texts of attack {artefact.attack[:60]!a}, not of"
                f" {name!r}; choose the attack, attack.mode and attack.knowledge of that search, or give the"
                " file to attack=cached."
            )
        if self.variant is not None and self.variant not in artefact.variants:
            known = ", ".join(map(str, artefact.variants))
            raise ConfigError(f"attack.variant is {self.variant!r}; the artefact has {known}.")
        return artefact


def check_count(option: str, value: object) -> int:
    """Return an option's value if it is a whole number from 1 to 1000; else raise a `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ConfigError(f"{option} is {value!r}; give a whole number from 1 to 1000.")
    return value


def check_number(option: str, value: object, least: float, most: float) -> float:
    """Return an option's value if it is a number within these bounds; else raise a `ConfigError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{option} is {value!r}; give a number from {least} to {most}.")
    return float(value)
