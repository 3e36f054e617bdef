"""The place of a stored case: the folder of its pipeline, and the folder that holds the pipelines."""

from __future__ import annotations

import os
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from agentsys.records.case import safe_name


class RunFolders(NamedTuple):
    """Two folders, as absolute paths."""

    logdir: str
    """The log folder, ours or another runner's. Without AgentDojo's layout: the folder of the file."""
    pipeline: str
    """The pipeline's folder in it; likewise."""
    is_pipeline: bool
    """Whether the folder is a pipeline's, so that its name says something."""


def find_run_folders(source: str, suite: str, user_task_id: str) -> RunFolders:
    """Find the two folders of a case's file.

    Args:
        source: Path of the file (of ASB's: with `#` and the row's number).
        suite: The suite by the file; the layout is AgentDojo's where the folders say so too.
        user_task_id: The user task by the file, likewise.
    """
    return _split_folder(source.rpartition("/")[0], suite, user_task_id)


@lru_cache(maxsize=100_000)
def _split_folder(folder: str, suite: str, user_task_id: str) -> RunFolders:
    # <home>/<pipeline>/<suite>/<user task>/<attack>
    above, *last = folder.rsplit("/", 3)
    if len(last) < 3 or not above or not _DOT_NAMES.isdisjoint(last):
        above, *last = _absolute_path(folder).rsplit("/", 3)
    if above and _is_name(last[0], suite) and _is_name(last[1], user_task_id):
        pipeline = _pipeline_folders(above)  # of thousands of folders, as a rule, one and the same
        if pipeline.pipeline.strip("/"):
            return pipeline
    whole = _absolute_path(folder)
    return RunFolders(whole, whole, is_pipeline=False)


_DOT_NAMES = frozenset({"", ".", ".."})
"""Components that are no folder's name."""


@lru_cache(maxsize=10_000)
def _pipeline_folders(folder: str) -> RunFolders:
    whole = _absolute_path(folder)
    return RunFolders(whole.rpartition("/")[0] or "/", whole, is_pipeline=True)


def _absolute_path(folder: str) -> str:
    """The absolute path by the names as they were given, links not followed."""
    return os.path.abspath(folder)  # noqa: PTH100


def _is_name(component: str, name: str) -> bool:
    return component == name or component == safe_name(name)  # the second takes a while


def shortest_distinct_ends(paths: Collection[str]) -> dict[str, str]:
    """Path -> the shortest end of it that no other one of these has, e.g. `old` and `new`."""
    parts = {path: path.split("/") for path in paths}
    for length in range(1, 1 + max(map(len, parts.values()), default=0)):
        ends = {path: "/".join(split[-length:]) for path, split in parts.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {path: path for path in paths}
