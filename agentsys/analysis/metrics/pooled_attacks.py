"""Several attacks as one line: the mean over attack types, as benchmarks publish it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from agentsys.analysis.metrics.benchmark_facts import IS_CONTROL
from agentsys.analysis.metrics.rates import MeasuredCell
from agentsys.errors import ConfigError
from agentsys.grouping import grouped
from agentsys.records.case_row import NO_ATTACK, CaseRow


def together(cases: Sequence[CaseRow], pattern: str) -> tuple[CaseRow, ...]:
    """The cases, with the attacks whose name matches taken for one, e.g. `opi_* (5 attacks)`.

    Of each defense only cases that it has under all of these attacks are kept, so that every attack
    weighs alike. Controls are left as they are, and so is an attack that is the only match.

    Args:
        cases: Cases in any order.
        pattern: A shell pattern of attacks' names, e.g. `opi_*`.

    Raises:
        ConfigError: If nowhere two attacks match.
    """
    controls = {case.attack for case in cases if case.measured.get(IS_CONTROL) is True} | {NO_ATTACK}
    attacks = {case.attack for case in cases} - controls
    matching = {name for name in attacks if fnmatchcase(name, pattern)}
    span = 1 + max((case.epoch for case in cases), default=0)
    fields = grouped(cases, lambda case: MeasuredCell.of(case)[:4])
    found = tuple(case for field in fields.values() for case in _joined(field, matching, pattern, span))
    if {case.attack for case in found} <= attacks | controls:
        raise ConfigError(
            f"--together {pattern}: two attacks or more must match; these runs have"
            f" {', '.join(sorted(attacks)) or 'none'}."
        )
    return found


def _joined(field: Sequence[CaseRow], matching: set[str], pattern: str, span: int) -> Iterator[CaseRow]:
    """The cases of one defense on one benchmark."""
    names = sorted({case.attack for case in field} & matching)
    if len(names) < 2:
        yield from field
        return
    shared = set.intersection(*({case.place for case in field if case.attack == name} for name in names))
    for case in field:
        if case.attack not in names:
            yield case
        elif case.place in shared:
            # Each attack's cases are repetitions of their own, none of which is that of a control.
            epoch = (1 + names.index(case.attack)) * span + case.epoch
            yield replace(case, attack=f"{pattern} ({len(names)} attacks)", epoch=epoch)
