"""The stored cases that Figure 2 is about, with one name for what runs call by several.

Runs on ASB have a benchmark label per mode (`asb-faithful`, `asb-react`, ...), attacks a label per type. In
the figure the benchmark is `asb`, the attack `opi` and its control `control`; the mode is the panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from agentsys.analysis.metrics.benchmark_facts import IS_CONTROL
from agentsys.records.case_row import NO_ATTACK, CaseRow

BENCHMARK, ATTACK, CONTROL = "asb", "opi", "control"

PREFERRED = ("opi_context_ignoring", ATTACK)
"""The attack type of the published defense runs; another is shown where these were not run."""

MODE, LABEL = "figure2_mode", "figure2_attack"
"""Keys of `measured` under which the figure finds a case's mode and the attack's own label."""


def figure2_cases(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """The attacked cases on ASB, of one attack type and its control, under the figure's names."""
    listed = [case for case in cases if _is_asb(case) and case.attack != NO_ATTACK]
    controls = {case.attack for case in listed if case.measured.get(IS_CONTROL) is True}
    attack = _attack(case.attack for case in listed if case.attack not in controls)
    return [_renamed(case, CONTROL if case.attack in controls else ATTACK) for case in listed
            if case.attack in controls or case.attack == attack]  # fmt: skip


def mode_of(case: CaseRow) -> str:
    """E.g. `faithful`; empty where the benchmark's label names none."""
    return str(case.measured.get(MODE, ""))


def label_of(case: CaseRow) -> str:
    """The attack's own label."""
    return str(case.measured.get(LABEL, case.attack))


def _is_asb(case: CaseRow) -> bool:
    return case.benchmark == BENCHMARK or case.benchmark.startswith(f"{BENCHMARK}-")


def _attack(labels: Iterable[str]) -> str | None:
    """The preferred attack type if it was run, else the one with the most cases."""
    counts = Counter(labels)
    known = [label for label in PREFERRED if label in counts]
    return known[0] if known else max(sorted(counts), key=lambda label: counts[label], default=None)


def _renamed(case: CaseRow, attack: str) -> CaseRow:
    mode = case.benchmark.removeprefix(BENCHMARK).removeprefix("-")
    facts = {**case.measured, MODE: mode, LABEL: case.attack}
    return replace(case, benchmark=BENCHMARK, attack=attack, measured=facts)
