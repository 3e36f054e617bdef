"""Folders -> `Reading`: every stored case in them, and every file that could not be used, with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsys.analysis.case_row import CaseRow
from agentsys.analysis.drift_record import drift_row, is_drift
from agentsys.analysis.own_record import OWN_KEY, own_row
from agentsys.analysis.published_record import published_row
from agentsys.analysis.unreadable import UnreadableRecord
from agentsys.errors import ConfigError


class Skipped(NamedTuple):
    """A file that was passed over."""

    path: str
    reason: str


@dataclass(frozen=True)
class Reading:
    """What some folders hold."""

    cases: tuple[CaseRow, ...]
    """In the order of the paths given, then by path; each case once."""
    skipped: tuple[Skipped, ...] = ()
    """Files that should hold a case and do not."""
    repeated: int = 0
    """Further files of cases that are in `cases` already."""
    other_files: int = 0
    """JSON files that are something else (a plan, a cache)."""


def read_cases(paths: Iterable[str | os.PathLike[str]]) -> Reading:
    """Every stored case under some paths, ours and AgentDojo's published ones alike.

    Args:
        paths: Log folders, pipeline folders, suite folders or single files, in any mixture; overlaps
            are read once. Hidden files and folders are passed over.

    Returns:
        The cases and what was skipped. A bad file is never fatal. Where a case is stored twice, the
        first file counts, unless only the second one finished without error.

    Raises:
        ConfigError: If a path does not exist, or no path holds a single case.
    """
    roots = [Path(path) for path in paths]
    skipped: list[Skipped] = []
    kept: dict[tuple[Any, ...], CaseRow] = {}
    repeated = other = 0
    for path in _json_files(roots, skipped):
        try:
            row = _row(path)
        except UnreadableRecord as fault:
            skipped.append(Skipped(path, str(fault)))
            continue
        if row is None:
            other += 1
            continue
        first = kept.setdefault(row.identity, row)
        repeated += first is not row
        if first.status == "error" and row.status == "ok":
            kept[row.identity] = row
    if not kept:
        raise ConfigError(_nothing_found(roots, skipped, other))
    return Reading(tuple(kept.values()), tuple(skipped), repeated, other)


def skipped_lines(skipped: Sequence[Skipped], limit: int = 5) -> list[str]:
    """One line per skipped file, at most `limit`, then one line with the count of the rest."""
    lines = [f"Skipped {path}: {reason}" for path, reason in skipped[:limit]]
    rest = len(skipped) - limit
    return [*lines, f"Skipped {rest} more file{'s' if rest > 1 else ''}."] if rest > 0 else lines


def _row(path: str) -> CaseRow | None:
    stored = _json_of(path)
    if not isinstance(stored, dict):
        return None
    if OWN_KEY in stored:
        return own_row(stored, path)
    if is_drift(stored):
        return drift_row(stored, path)
    if "suite_name" in stored and "user_task_id" in stored:
        return published_row(stored, path)
    return None


def _json_of(path: str) -> object:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  Path.open costs 10% more over 40,000 files
            content = file.read()
    except OSError as error:
        raise UnreadableRecord(f"cannot be read ({error.strerror})") from None
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        pass
    try:
        # AgentDojo writes with the standard library, which lets NaN and lone surrogates through.
        return json.loads(content)
    except (ValueError, RecursionError):
        state = "empty" if not content.strip() else "not valid JSON, perhaps cut off"
        raise UnreadableRecord(f"{state}; the next run of its case writes it anew") from None


def _json_files(roots: Sequence[Path], skipped: list[Skipped]) -> Iterator[str]:
    """Paths of JSON files, sorted inside each root; every folder is visited once, links included."""
    seen: set[tuple[int, int]] = set()
    for root in roots:
        if not root.exists():
            raise ConfigError(f"No folder '{root}'. Give the log folder of a run: agentsys results DIR")
        if root.is_file():
            yield str(root)
        for folder, subfolders, files in os.walk(
            root, followlinks=True, onerror=lambda error: skipped.append(_unlisted(error))
        ):
            status = os.stat(folder)  # noqa: PTH116  `folder` is a str already
            if (status.st_dev, status.st_ino) in seen:
                subfolders.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(files):
                if name.endswith(".json") and not name.startswith("."):
                    yield os.path.join(folder, name)  # noqa: PTH118


def _unlisted(error: OSError) -> Skipped:
    return Skipped(str(error.filename), f"cannot be read ({error.strerror})")


def _nothing_found(roots: Sequence[Path], skipped: Sequence[Skipped], other: int) -> str:
    where = ", ".join(f"'{root}'" for root in roots) or "no folder at all"
    if skipped:
        path, reason = skipped[0]
        seen = f"{len(skipped)} files could not be used, the first being {path}: {reason}."
    else:
        seen = f"{other} other JSON files." if other else "no JSON files."
    return f"No stored cases in {where}: {seen} Give the log folder of a run: agentsys results DIR"
