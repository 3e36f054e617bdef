"""`Facts`: what stands beside the numbers - errors, configs, versions -, gathered while files are read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from agentsys.analysis.html_report.trajectory import StoredFacts
from agentsys.analysis.tables.escaping import plain
from agentsys.records.case_row import CaseRow

_HASH = re.compile(r"[0-9a-f]{8,64}")
_LONGEST_CONFIG = 200_000
"""Bytes; a resolved config has about one thousand."""
_LEVELS_TO_LOGDIR = 8
"""Folders to go up from a record, at most; our layout has five."""


@dataclass(frozen=True)
class ErrorGroup:
    """Errored cases of one kind and message."""

    kind: str
    message: str
    """First line of what was stored."""
    defenses: tuple[str, ...]
    cases: int


@dataclass(frozen=True)
class ConfigGroup:
    """Cases that ran with one resolved config."""

    config_hash: str
    used_by: tuple[str, ...]
    """E.g. `gpt-4o, agentsys, important_instructions`."""
    cases: int
    text: str | None
    """The config as JSON; None where it is not beside the runs."""


@dataclass(frozen=True)
class VersionGroup:
    """One version of one package, or of one suite's data."""

    package: str
    version: str
    cases: int


@dataclass
class Facts:
    """Fill it with `add`, one case at a time."""

    _errors: dict[tuple[str, str], list[CaseRow]] = field(default_factory=dict)
    _configs: dict[tuple[str, str | None], list[CaseRow]] = field(default_factory=dict)
    _versions: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, case: CaseRow, stored: StoredFacts) -> None:
        """Book one case."""
        if case.status == "error":
            message = plain((stored.error or "no message was stored").strip().split("\n")[0][:400])
            self._errors.setdefault((plain(case.error_kind or "unknown"), message), []).append(case)
        if case.config_hash is not None:
            where = config_path(case.source, case.config_hash)
            self._configs.setdefault((case.config_hash, where), []).append(case)
        self._versions.update(_labelled(case, stored.versions))

    @property
    def errors(self) -> list[ErrorGroup]:
        """The most frequent first."""
        groups = [
            ErrorGroup(kind, message, tuple(sorted({plain(case.defense) for case in cases})), len(cases))
            for (kind, message), cases in self._errors.items()
        ]
        return sorted(groups, key=lambda group: (-group.cases, group.kind, group.message))

    @property
    def configs(self) -> list[ConfigGroup]:
        """By who used them."""
        groups = [
            ConfigGroup(plain(found[:64]), _users(cases), len(cases), _config_text(where))
            for (found, where), cases in self._configs.items()
        ]
        return sorted(groups, key=lambda group: (group.used_by, group.config_hash))

    @property
    def versions(self) -> list[VersionGroup]:
        """By package, then the most frequent version."""
        counted = sorted(self._versions.items(), key=lambda item: (item[0][0], -item[1], item[0][1]))
        return [VersionGroup(*name, cases) for name, cases in counted]


def _users(cases: list[CaseRow]) -> tuple[str, ...]:
    return tuple(sorted({plain(f"{case.table_model}, {case.defense}, {case.attack}") for case in cases}))


def _labelled(case: CaseRow, versions: Mapping[str, str]) -> list[tuple[str, str]]:
    """The data's hash says which suite it is of: suites have data of their own."""
    return [
        (plain(f"data of {case.suite}" if package == "data" else package), plain(version))
        for package, version in versions.items()
    ]


def config_path(source: str, config_hash: str) -> str | None:
    """Where the resolved config of a record lies: beside the runs, under its hash; None where nowhere."""
    # The hash comes out of a stored file: anything else than a hash could lead out of the folder.
    if not _HASH.fullmatch(config_hash):
        return None
    folder = _configs_folder(str(Path(source).parent))
    return None if folder is None else str(Path(folder, f"{config_hash}.config"))


@lru_cache(maxsize=4096)
def _configs_folder(folder: str) -> str | None:
    places = [Path(folder), *Path(folder).parents][:_LEVELS_TO_LOGDIR]
    found = (place / ".agentsys" / "configs" for place in places)
    return next((str(place) for place in found if place.is_dir()), None)


def _config_text(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        with Path(path).open("rb") as file:
            return file.read(_LONGEST_CONFIG).decode(errors="replace")
    except OSError:
        return None
