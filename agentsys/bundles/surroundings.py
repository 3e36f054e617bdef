"""What cases depend on that is in no bundle: versions of packages, digests of datasets."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentsys.benchmarks.agentdyn.checkout import fetched_folder as fetched_agentdyn
from agentsys.benchmarks.asb.source import FETCHED
from agentsys.benchmarks.asb.source import fetched_folder as fetched_asb
from agentsys.contracts import Benchmark
from agentsys.runs.build_record import package_versions
from agentsys.runs.source_code import content_digest

_PROJECT = "agentsys-bench"
_DATA = {".yaml", ".yml", ".json", ".jsonl", ".csv", ".txt"}


def versions() -> dict[str, str]:
    """Package -> version: ours, Python, and every package that ours needs."""
    found = dict(package_versions())
    try:
        wanted = [one for one in requires(_PROJECT) or () if "extra ==" not in one]
    except PackageNotFoundError:  # run from a folder that was never installed
        wanted = []
    for one in wanted:
        name = re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0]
        try:
            found[name.lower()] = version(name)
        except PackageNotFoundError:  # not needed on this Python
            continue
    return dict(sorted(found.items()))


def data_files(benchmark: Benchmark, options: Mapping[str, Any], suites: Collection[str]) -> dict[str, str]:
    """Data file of some suites -> the beginning of its SHA-256.

    Args:
        benchmark: The benchmark.
        options: Its YAML.
        suites: Names of the suites.
    """
    found: dict[str, str] = {}
    for name in sorted(suites):
        place = benchmark.suite(name).data_path or _in_agentdojo(name)
        if place is not None:
            found |= _digests(place, f"{benchmark.name}/{name}")
    if options.get("data") == FETCHED:
        found |= _digests(fetched_asb(), "fetched asb")
    if options.get("source") == FETCHED:
        found |= _digests(fetched_agentdyn(), "fetched agentdyn")
    return found


def _in_agentdojo(suite: str) -> Path | None:
    place = Path(str(files("agentdojo"))) / "data" / "suites" / suite
    return place if place.is_dir() else None


def _digests(folder: Path, shown: str) -> dict[str, str]:
    return {
        f"{shown}/{path.relative_to(folder).as_posix()}": content_digest(path) for path in _data_in(folder)
    }


def _data_in(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in sorted(folder.rglob("*")) if path.suffix in _DATA and path.is_file())
