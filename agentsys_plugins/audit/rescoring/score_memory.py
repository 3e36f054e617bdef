"""`ScoreMemory`: the scores that an earlier check of a folder came to, so that only what has changed is scored again.

It lies in the user's cache folder and never beside the runs: whoever hands on runs must not be able to say how they
score. A score is known by the record's bytes, whose run it is, and the code that scored it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from platformdirs import user_cache_path

from agentsys.base.atomic_file import PRIVATE, write_atomically
from agentsys.records.case_row import CaseRow
from agentsys.runs.store import hash_package_files
from agentsys_plugins.audit.rescoring.read_trajectories import RecordFiles


class ScoreMemory(NamedTuple):
    """What is known of a folder's scores, and under which conditions."""

    file: str
    conditions: str
    """Hash of all that scores depend on besides the record."""

    def make_key(self, path: str, facts: CaseRow | None) -> str | None:
        """Build the key of a record; None if its file cannot be read."""
        named = None if facts is None else repr(_of_run(facts))
        digest = hashlib.blake2b(f"{self.conditions}\n{named}\n".encode("utf-8", "backslashreplace"))
        try:
            digest.update(Path(path).read_bytes())
        except OSError:
            return None
        return digest.hexdigest()[:40]

    def has_all(self, records: RecordFiles) -> bool:
        """True if the scores of all these records are known."""
        keys = (self.make_key(path, records.facts_by_file.get(path)) for path in records.files)
        return all(self.find(key) is not None for key in keys)

    def find(self, key: str | None) -> Any:
        """What was kept under a key; None: nothing was."""
        return None if key is None else _load(self.file).get(key)

    def keep(self, scores: Mapping[str, Any]) -> None:
        """Keep these and no others; without a place for them the next check scores anew."""
        if scores != _load(self.file):
            try:
                write_atomically(Path(self.file), orjson.dumps(scores), durable=False, mode=PRIVATE)
            except OSError:
                return


_IDENTITY = ("model", "defense", "attack", "version", "apart", "foreign", "simulated", "exposed_raw")


def _of_run(facts: CaseRow) -> list[Any]:
    return [getattr(facts, name) for name in _IDENTITY]


def find_score_memory(folder: Path, *conditions: object) -> ScoreMemory:
    """Find the memory of a folder's scores under some conditions, beside the code's and the checks' version."""
    code = {**hash_package_files(), "agentdojo": version("agentdojo"), "pydantic": version("pydantic")}
    told = f"{sorted(code.items())}\n{conditions!r}"
    place = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
    file = user_cache_path("agentsys") / "scores" / f"{place}.json"
    return ScoreMemory(str(file), hashlib.sha256(told.encode("utf-8", "backslashreplace")).hexdigest())


@lru_cache(maxsize=1)
def _load(file: str) -> Mapping[str, Any]:
    try:
        stored = orjson.loads(Path(file).read_bytes())
    except (OSError, ValueError):
        return {}
    return stored if isinstance(stored, dict) else {}
