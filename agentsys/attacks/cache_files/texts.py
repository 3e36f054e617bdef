"""`CacheTexts`: the texts of a file, or of a folder with one file per suite, and where they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsys.attacks.cache_files.autodojo import Provenance
from agentsys.attacks.cache_files.cache_file import TextKey, read_cache_file
from agentsys.errors import ConfigError

_ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class CacheTexts:
    """Ready-made injection texts."""

    texts: Mapping[TextKey, str]
    sources: Sequence[Provenance]
    """One per foreign file; none for files of our own forms."""

    @property
    def fingerprint(self) -> str:
        """Eight digits of what is written for what; wherever the file lies and whatever else stands in it."""
        listed = sorted((*(str(part) for part in key), text) for key, text in self.texts.items())
        return hashlib.sha256(json.dumps(listed).encode("utf-8", "replace")).hexdigest()[:8]

    def find_text(self, suite: str, user_task: str, injection_task: str, vector: str, variant: int) -> str | None:
        """The text for one vector of a pair of tasks; None if there is none.

        A text for this very vector goes before one for any, this user task's before one for all, this
        variant's before one without number.
        """
        for where in (vector, None):
            for user in (user_task, None):
                for number in (variant, None):
                    found = self.texts.get(TextKey(suite, user, injection_task, where, number))
                    if found is not None:
                        return found
        return None

    @property
    def variants(self) -> tuple[int, ...]:
        """The numbers that texts have."""
        return tuple(sorted({key.variant for key in self.texts if key.variant is not None}))


def read_texts(path: Path) -> CacheTexts:
    """Read a file, or every file of a folder and of those in it.

    Raises:
        ConfigError: Naming the file, the place in it, what is wrong there and the mend.
    """
    if not path.is_dir():
        texts, source = read_cache_file(path)
        return CacheTexts(texts, [source] if source else [])
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in _ENDINGS and file.is_file()]
    if not files:
        raise ConfigError(f"attack.file {path}: no JSON file in it; give a folder with a file per suite.")
    texts, sources = {}, []
    for file in files:
        found, source = read_cache_file(file)
        for key, text in found.items():
            if texts.setdefault(key, text) != text:
                raise ConfigError(
                    f"attack.file {path}: two files have texts for {key.suite} {key.injection_task},"
                    f" the second is {file.relative_to(path)}; give a folder with one file per suite."
                )
        sources += [source] if source else []
    return CacheTexts(texts, sources)


def name_texts(path: Path) -> str:
    """The name of a file's texts in results; a foreign file's or a folder's ends in their fingerprint."""
    try:
        found = read_texts(path)
    except ConfigError:
        return path.stem  # whoever uses it is told what is wrong with it
    return f"{path.stem}-{found.fingerprint}" if found.sources or path.is_dir() else path.stem
