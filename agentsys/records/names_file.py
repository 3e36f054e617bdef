"""`RunNames`: what a user states about other people's runs.

A YAML file, given with `--names FILE` or kept as `agentsys_names.yaml` in the folder that holds the
pipelines' folders:

    "*secalign*/local":
      model: Meta-SecAlign-70B
    "*-progent":
      version: v1.2.2
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentsys.errors import ConfigError
from agentsys.records.case import describe_first_fault

NAMES_FILE = "agentsys_names.yaml"
"""The file's name beside the folders that it speaks of."""

SERVED_FILE = "agentsys_served.json"
"""What a served agent writes into its log folder, for the files that clients store there."""


class AnsweringAgent(BaseModel):
    """Who really answered a client whose files name the model that it asked for."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    model: str = Field(min_length=1)
    defense: str = Field(min_length=1)
    simulated: bool
    asked: list[str]
    """Model ids that clients asked for; files that name another one are somebody else's."""


def read_answering_agent(folder: str) -> AnsweringAgent | None:
    """The served agent that answered the clients who store into a folder; None where it says nothing."""
    try:
        return AnsweringAgent.model_validate_json(Path(folder, SERVED_FILE).read_bytes())
    except (OSError, ValueError):
        return None


class RunOverride(BaseModel):
    """The user's word on the folders that one pattern matches; None: nothing is said."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    model: str | None = Field(default=None, min_length=1)
    defense: str | None = Field(default=None, min_length=1)
    version: str | None = Field(default=None, min_length=1)
    """Only for files that name none: what a file records of its version is never replaced."""


_ENTRIES = TypeAdapter(dict[str, RunOverride])
_NO_OVERRIDE = RunOverride()
_Entries = Mapping[str, RunOverride]
"""Pattern of folders -> what is said of them."""


@dataclass
class RunNames:
    """Finds the user's entry for a folder: in the file that was given, or in one beside the folder.

    Each file is read once.

    Raises:
        ConfigError: If the file that was given does not exist, or a file is malformed.
    """

    file: str | os.PathLike[str] | None = None
    _entries: _Entries = field(init=False)
    _beside: dict[str, _Entries] = field(init=False, default_factory=dict)
    _used: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        if self.file is not None and not Path(self.file).is_file():
            raise ConfigError(f"--names {self.file}: no such file.")
        self._entries = {} if self.file is None else _read_names(Path(self.file))

    def find_override(self, folder: str) -> RunOverride:
        """Look up a pipeline's folder: for each of the three facts the first entry that says it.

        Args:
            folder: Absolute path of the folder. A pattern matches its name, or the end of its path.
        """
        home, _, name = folder.rpartition("/")
        if home not in self._beside:
            path = Path(home, NAMES_FILE)
            self._beside[home] = _read_names(path) if path.is_file() else {}
        found: dict[str, str] = {}
        for pattern, said in (*self._entries.items(), *self._beside[home].items()):
            if fnmatchcase(name, pattern) or fnmatchcase(folder, f"*/{pattern}"):
                self._used.add(pattern)
                found = said.model_dump(exclude_none=True) | found
        return RunOverride(**found) if found else _NO_OVERRIDE

    def describe_unused(self) -> Iterator[str]:
        """A line for each entry of the given file that matched no folder so far."""
        for pattern in self._entries:
            if pattern not in self._used:
                yield f"{self.file}: '{pattern}' matches no folder of other people's runs here."


def _read_names(path: Path) -> _Entries:
    import yaml  # here, because tables of stored runs seldom need it and should start fast

    form = "a pattern of folders per entry, with model, defense or version under it"
    try:
        stored: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _ENTRIES.validate_python({} if stored is None else stored)
    except ValidationError as error:
        raise ConfigError(f"{path}: {describe_first_fault(error)}. Write {form}.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        lines: Sequence[str] = str(error).splitlines() or [type(error).__name__]
        raise ConfigError(f"{path} is not YAML: {lines[-1].strip()}. Write {form}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
