"""What cases depend on that is in no bundle: versions of packages, digests of datasets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from agentsys.benchmarks.agentdyn.checkout import agentdyn_folder as fetched_agentdyn
from agentsys.benchmarks.asb.source import FETCHED
from agentsys.benchmarks.asb.source import asb_folder as fetched_asb
from agentsys.contracts import Benchmark
from agentsys.runs.build_record import package_versions
from agentsys.runs.source_code import content_digest

_PROJECT = "agentsys-bench"
_DATA_SUFFIXES = {".yaml", ".yml", ".json", ".jsonl", ".csv", ".txt"}


def list_package_versions() -> dict[str, str]:
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


def hash_data_files(benchmark: Benchmark, options: Mapping[str, Any], suites: Collection[str]) -> dict[str, str]:
    """Data file of some suites -> the beginning of its SHA-256."""
    found: dict[str, str] = {}
    for name in sorted(suites):
        in_agentdojo = Path(str(files("agentdojo"))) / "data" / "suites" / name
        found |= _digests(benchmark.suite(name).data_path or in_agentdojo, f"{benchmark.name}/{name}")
    if options.get("data") == FETCHED:
        found |= _digests(fetched_asb(), "fetched asb")
    if options.get("source") == FETCHED:
        found |= _digests(fetched_agentdyn(), "fetched agentdyn")
    return found


def _digests(folder: Path, shown: str) -> dict[str, str]:
    """Digests of the data files in a folder, by what they are called; none where there is no folder."""
    return {
        f"{shown}/{path.relative_to(folder).as_posix()}": content_digest(path)
        for path in (sorted(folder.rglob("*")) if folder.is_dir() else ())
        if path.suffix in _DATA_SUFFIXES and path.is_file()
    }
