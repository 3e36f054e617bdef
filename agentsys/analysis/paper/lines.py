"""`RunLine`: the cases of one model and defense that can share a row of a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from agentsys.analysis.published import short_model
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow, is_simulated_name

BENCHMARK = "agentdojo"
"""The benchmark of Tables 1 to 7, with official checkers and data."""


@dataclass(frozen=True)
class RunLine:
    """One model and defense; of one benchmark version unless no suite and attack has two."""

    model: str
    """As the runs name it; marked if simulated."""
    defense: str
    versions: tuple[str, ...]
    """More than one where suites or attacks come from different versions of the benchmark."""
    cases: tuple[CaseRow, ...]
    """Their `version` is the line's."""

    @property
    def version(self) -> str:
        """E.g. `v1.2.2`, or `v1 + v1.2.2` for a mixture."""
        return " + ".join(self.versions)

    @property
    def is_mixed(self) -> bool:
        """Whether its numbers rest on more than one version of the benchmark."""
        return len(self.versions) > 1

    @property
    def simulated(self) -> bool:
        """Whether a scripted agent, not a language model, was behind it."""
        return is_simulated_name(self.model)

    @property
    def short(self) -> str:
        """The paper's name of the model; a simulated one has none and keeps its mark."""
        return self.model if self.simulated else short_model(self.model)


def run_lines(
    cases: Iterable[CaseRow],
    attacks: Collection[str],
    benchmark: str = BENCHMARK,
    *,
    joins_versions: bool = True,
) -> list[RunLine]:
    """The lines that some attacks make up, sorted by model, defense and version.

    Versions of the benchmark are put into one line only where they complete each other; where the same
    suite was run under the same attack on two versions, each version has a line of its own.

    Args:
        cases: Cases in any order. Other benchmarks and injection tasks run alone are passed over.
        attacks: Labels of attacks; `none` for benign cases.
        benchmark: The benchmark's label.
        joins_versions: Whether versions may complete each other; data sets of one's own never do.
    """
    needed = (c for c in cases if c.benchmark == benchmark and c.attack in attacks and c.is_scored)
    groups = group_by(needed, lambda case: (case.table_model, case.defense))
    return [line for key in sorted(groups) for line in _lines(*key, groups[key], joins_versions)]


def _lines(model: str, defense: str, cases: Sequence[CaseRow], joins_versions: bool) -> list[RunLine]:
    by_version = group_by(cases, lambda case: case.version)
    covered = [{(case.attack, case.suite) for case in found} for found in by_version.values()]
    versions = tuple(sorted(by_version))
    if not joins_versions or sum(map(len, covered)) > len(set().union(*covered)):
        return [RunLine(model, defense, (version,), tuple(by_version[version])) for version in versions]
    label = " + ".join(versions)
    mixed = (case if case.version == label else replace(case, version=label) for case in cases)
    return [RunLine(model, defense, versions, tuple(mixed))]
