"""Files that an attack's options name: their content is part of what a case depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentsys.errors import ConfigError
from agentsys.runs.settings import Settings


def with_files(settings: Settings) -> Settings:
    """The same settings, with the hash of each file that the attack, or the attack it builds on, names.

    Raises:
        ConfigError: If a file cannot be read.
    """
    named = dict(_named(settings.attack, "attack"))
    if not named:
        return settings
    return settings.model_copy(update={"files": {key: _digest(key, path) for key, path in named.items()}})


def name_from_file(choice: str, attack: Mapping[str, Any]) -> str | None:
    """The label of an attack that has an option `file` and no name: `cached-mine` for `mine.json`.

    Args:
        choice: The name of the attack's YAML.
        attack: Its options.
    """
    file = attack.get("file")
    return f"{choice}-{Path(file).stem}" if isinstance(file, str) and file else None


def artefact_mark(attack: Mapping[str, Any]) -> str:
    """What an artefact adds to an attack's label: the beginning of its content's hash; else nothing.

    Raises:
        ConfigError: If it cannot be read.
    """
    file = attack.get("artefact")
    return f"+artefact={_digest('attack.artefact', Path(file))[:8]}" if isinstance(file, str) and file else ""


def _named(attack: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Path]]:
    base = attack.get("base")
    for option in ("file", "artefact"):
        file = attack.get(option)
        if isinstance(file, str) and file:
            yield f"{prefix}.{option}", Path(file)
    if isinstance(base, Mapping):
        yield from _named(base, f"{prefix}.base")


def _digest(key: str, path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise ConfigError(f"{key} {path} cannot be read: {error.strerror}. Give an existing file.") from None
