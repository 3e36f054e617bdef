"""Tags of tasks that matter to readers, and cases split by one of them.

Which tasks bear a tag is data (`data/task_tags.json`, with its source).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import orjson

from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import CaseRow

Tasks = Mapping[str, frozenset[str]]
"""Suite -> task ids."""


@dataclass(frozen=True)
class Tag:
    """A property of some tasks."""

    name: str
    kind: Literal["user_task", "injection_task"]
    says: str
    """What it means, as the end of a sentence about one task."""
    tasks: Mapping[str, Tasks]
    """Benchmark -> tasks that bear it, in whichever version has them."""
    mended_by: str | None
    """A change of the benchmark (a part of its label) under which no task bears it."""


@dataclass(frozen=True)
class Split:
    """Cases with and without a tag."""

    tag: Tag
    tagged: tuple[CaseRow, ...]
    others: tuple[CaseRow, ...]
    unknown: int
    """Cases of benchmarks whose tasks were not looked at; in neither group."""

    @property
    def note(self) -> str:
        """One line for below the table."""
        owner = self.tag.kind.replace("_", " ")
        both = (
            " Benign cases have no injection task and stand in both groups." if _of_attacks(self.tag) else ""
        )
        left = f" {self.unknown} cases of benchmarks without tags are in neither." if self.unknown else ""
        return f"{self.tag.name}: a {owner} of which holds: {self.tag.says}.{both}{left}"


def tag_of(name: str) -> Tag:
    """The tag of a name.

    Raises:
        ConfigError: If there is none.
    """
    found = all_tags().get(name)
    if found is None:
        raise ConfigError(unknown_name("tag", name, all_tags()))
    return found


@lru_cache(maxsize=1)
def all_tags() -> dict[str, Tag]:
    """Name -> tag."""
    return {name: _tag(name, entry) for name, entry in shipped_data("task_tags")["tags"].items()}


def shipped_data(name: str) -> dict[str, Any]:
    """One of the package's tables of tasks and fixes (`analysis/data`)."""
    stored: dict[str, Any] = orjson.loads(
        files("agentsys.analysis").joinpath("data", f"{name}.json").read_bytes()
    )
    return stored


def split(cases: Iterable[CaseRow], tag: Tag) -> Split:
    """Cases with and without a tag.

    Args:
        cases: Cases in any order, which both groups keep. For a tag of injection tasks, benign cases are
            in both.
        tag: What to split by.
    """
    tagged, others, unknown = [], [], 0
    for case in cases:
        if case.benchmark.split("+")[0] not in tag.tasks:
            unknown += 1
            continue
        in_both = _of_attacks(tag) and case.injection_task_id is None
        if in_both or bears(case, tag):
            tagged.append(case)
        if in_both or not bears(case, tag):
            others.append(case)
    return Split(tag, tuple(tagged), tuple(others), unknown)


def bears(case: CaseRow, tag: Tag) -> bool:
    """Tell whether a case's user task (or injection task) bears a tag."""
    benchmark, *changes = case.benchmark.split("+")
    if tag.mended_by in changes:
        return False
    task = case.injection_task_id if _of_attacks(tag) else case.user_task_id
    return task in tag.tasks.get(benchmark, {}).get(case.suite, frozenset())


def _of_attacks(tag: Tag) -> bool:
    return tag.kind == "injection_task"


def _tag(name: str, entry: Mapping[str, Any]) -> Tag:
    tasks = {
        benchmark: {suite: frozenset(listed) for suite, listed in suites.items()}
        for benchmark, suites in entry["tasks"].items()
    }
    return Tag(name, entry["kind"], entry["says"], tasks, entry.get("mended_by"))
