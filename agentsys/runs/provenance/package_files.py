"""The state of our own code: a digest for each file of the packages. Versions change less often than code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import orjson

import agentsys
from agentsys.atomic_file import write_atomically
from agentsys.runs.store import Store

_CODE_SUFFIX = ".code"
_SKIPPED_FOLDERS = {"__pycache__"}
_CASE_PACKAGES = ("attacks", "benchmarks", "defense", "models", "records", "runs")
"""The rooms of `agentsys` that a case runs through; the others print, compare and show."""


@lru_cache(maxsize=1)
def hash_package_files() -> Mapping[str, str]:
    """File that cases run through, from its package's name on -> the beginning of its SHA-256."""
    ours = Path(next(iter(agentsys.__path__)))
    beside = find_spec("baselines")
    theirs = [Path(place) for place in (beside and beside.submodule_search_locations) or ()]
    found = {}
    for place in (*sorted(ours.glob("*.py")), *(ours / room for room in _CASE_PACKAGES), *theirs):
        for path in _list_files(place):
            found[path.relative_to(place.parents[1] if place.parent == ours else place.parent).as_posix()] = (
                hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            )
    return found


def _list_files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return [
        path
        for path in sorted(place.rglob("*"))
        if path.is_file() and not _SKIPPED_FOLDERS & set(path.parts) and not path.name.startswith(".")
    ]


def store_code_state(store: Store) -> None:
    """Keep the state of the code that is about to run cases.

    Raises:
        StoreError: If it cannot be written.
    """
    data = orjson.dumps(dict(hash_package_files()))
    path = _code_folder(store.root) / f"{hashlib.sha256(data).hexdigest()[:16]}{_CODE_SUFFIX}"
    try:
        if not path.exists():
            write_atomically(path, data)
    except OSError as error:
        raise store.unwritable(path, error) from None


def load_code_states(logdir: Path) -> list[dict[str, str]]:
    """The states of the code that cases of a log folder were run with; empty where none were kept."""
    found = []
    for path in sorted(_code_folder(logdir).glob(f"*{_CODE_SUFFIX}")):
        try:
            state = orjson.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        if isinstance(state, dict) and all(isinstance(digest, str) for digest in state.values()):
            found.append(state)
    return found


def _code_folder(logdir: Path) -> Path:
    return logdir / ".agentsys" / "code"
