"""`SearchOptions`: what every attack that searches for its texts (PAIR, TAP) can be told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentsys.attacks.artefact import Artefact, read_artefact
from agentsys.errors import ConfigError, require_known_name

TRANSFER, PER_CASE = "transfer", "per_case"
SEARCH_MODES = (TRANSFER, PER_CASE)
TOPIC_JUDGES = ("model", "none")
SCORE_JUDGES = ("calls", "model")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options, checked.

    Raises:
        ConfigError: If one has a value it cannot have.
    """

    mode: str = "transfer"
    """`transfer`: one search per injection task; `per_case`: one per case."""
    knowledge: str = "task"
    """What the attacker is told of the case: `none`, `task` or `full` (see `Knowledge`)."""
    feedback: str = "blackbox"
    """What the attacker is told of its attempts: `blackbox` or `defense_aware`."""
    knowledge_file: str | None = None
    """A text file that is told in place of the defense's description; None: the description."""
    attacker: str | None = None
    """Name of the YAML of the attacker's model; None: the run's own model."""
    temperature: float = 1.0
    """The attacker's temperature, from 0.0 to 2.0."""
    on_topic: str = "none"
    """`model`: a model says which candidates are off topic, and they are not tried; `none`: all are tried."""
    judge: str = "calls"
    """Where scores below a success come from: the agent's `calls`, or a `model`."""
    search_on: int = 3
    """Number of user tasks that a candidate is tried on in mode `transfer`."""
    seed: int | None = None
    """Orders the attacker's strategies and breaks ties; None: 0."""
    artefact: str | None = None
    """A file of an earlier search: its texts are used and nothing is searched; None: search."""
    variant: int | None = None
    """Which of the artefact's texts for the same tasks, from 0; None: the best, which is 0."""
    save_all: bool = False
    """Whether the artefact keeps every distinct text that was tried, best first, and not the best alone."""

    def __post_init__(self) -> None:
        require_known_name("attack.mode", self.mode, SEARCH_MODES)
        if self.mode == TRANSFER:
            check_count("attack.search_on", self.search_on)
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise ConfigError(f"attack.seed is {self.seed!r}; give a whole number, or null for the run's.")
        check_number("attack.temperature", self.temperature, 0.0, 2.0)
        if not isinstance(self.save_all, bool):
            raise ConfigError(f"attack.save_all is {self.save_all!r}; give true or false.")
        if self.variant is not None and self.artefact is None:
            raise ConfigError("attack.variant chooses among the texts of attack.artefact; give both.")
        require_known_name("attack.on_topic", self.on_topic, TOPIC_JUDGES)
        require_known_name("attack.judge", self.judge, SCORE_JUDGES)

    def read_knowledge_file(self) -> str | None:
        """The text of `knowledge_file`; None without one.

        Raises:
            ConfigError: If the file cannot be read.
        """
        if self.knowledge_file is None:
            return None
        file = _check_file("attack.knowledge_file", self.knowledge_file, "a text file")
        try:
            return file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"attack.knowledge_file {file} cannot be read: {error}. Give a text file in UTF-8."
            ) from None

    def load_artefact(self, name: str) -> Artefact | None:
        """The artefact; None without one.

        Args:
            name: The attack's name: results are named after the attack that found the texts.

        Raises:
            ConfigError: If it cannot be read, or another attack made it.
        """
        if self.artefact is None:
            return None
        artefact = read_artefact(_check_file("attack.artefact", self.artefact, "a file of a search"))
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
    """The value, if it is a whole number from 1 to 1000.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
        raise ConfigError(f"{option} is {value!r}; give a whole number from 1 to 1000.")
    return value


def check_number(option: str, value: object, least: float, most: float) -> float:
    """The value, if it is a number within these bounds.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(f"{option} is {value!r}; give a number from {least} to {most}.")
    return float(value)


def _check_file(option: str, value: object, what: str) -> Path:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{option} is {value!r}; give the name of {what}, or null.")
    return Path(value)
