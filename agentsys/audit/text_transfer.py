"""`measure_transfers`: which ready-made texts, optimised against what, succeed against which agent.

A stored case names its texts by the fingerprint at the end of its attack's label; a folder of cache files
says what texts of that fingerprint were optimised against.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from agentsys.analysis.metrics.rates import TARGETED_ASR, MetricRow, Number, Percent, measure
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import MISSING, Grid, GridCell, cells, number_cell
from agentsys.records.case_row import CaseRow

_LABEL = re.compile(r"cached-.*-(?P<print>[0-9a-f]{8})(?P<options>(?:\+.*)?)", re.DOTALL)
_VARIANT = re.compile(r"\+variant=[^+]*")
ADAPTIVE_MARK = "*"
"""Ends the text of a number whose texts were optimised against this very model and defense alone."""


@dataclass(frozen=True, order=True)
class OptimisedFor:
    """What texts were optimised against."""

    victim: str
    defense: str

    def __str__(self) -> str:
        """Write it as tables name a pipeline."""
        return f"{self.victim} / {self.defense}"


TextOrigins = Mapping[str, Sequence[OptimisedFor]]
"""Fingerprint of texts -> what the files that hold exactly these texts name."""


@dataclass(frozen=True)
class TransferRow:
    """One place of the matrix."""

    optimised_for: str
    """Victim and defense; several, with ` = ` between them, where their files hold the same texts."""
    options: str
    """Of the attack besides the variant, e.g. `+rest=goal`."""
    benchmark: str
    version: str
    model: str
    """As tables show it: a simulated one is marked."""
    defense: str
    adaptive: bool
    """Whether the texts were optimised against this model and defense, and no other defense has them."""
    asr: Percent
    """Targeted ASR, mean of the suites, over all variants that were run; nan where undefined."""
    ci_low: Percent
    ci_high: Percent
    n: int
    """Cases it rests on."""
    errors: int
    """Errored cases, which are not counted."""


@dataclass(frozen=True)
class TransferMatrix:
    """The matrix."""

    rows: Sequence[TransferRow]
    unknown: Sequence[str]
    """Labels of `cached` attacks whose texts the files do not have."""


def measure_transfers(cases: Iterable[CaseRow], origins: TextOrigins) -> TransferMatrix:
    """Measure each pipeline under the texts of each origin; cases of other attacks are left out."""
    found, unknown, models = list[CaseRow](), dict[str, None](), dict[str, set[str]]()
    for case in cases:
        label = _LABEL.fullmatch(case.attack)
        if label is not None and label["print"] in origins:
            # Variants together: a pair of tasks counts once for each of them.
            options = _VARIANT.sub("", label["options"])
            found.append(replace(case, attack=f"{label['print']}{options}"))
            models.setdefault(case.table_model, set()).add("" if case.simulated else case.model)
        elif case.attack.startswith("cached-"):
            unknown[case.attack] = None
    rates = [row for row in measure(found) if (row.metric, row.suite) == (TARGETED_ASR, OVERALL)]
    rows = [_build_row(rate, origins[rate.attack[:8]], models[rate.model]) for rate in rates]
    order = attrgetter("benchmark", "version", "optimised_for", "options", "model", "defense")
    return TransferMatrix(sorted(rows, key=order), sorted(unknown))


def _build_row(rate: MetricRow, origins: Sequence[OptimisedFor], models: Iterable[str]) -> TransferRow:
    named = sorted(set(origins))
    own = len(named) == 1 and (named[0].defense, [named[0].victim]) == (rate.defense, list(models))
    return TransferRow(
        optimised_for=" = ".join(map(str, named)),
        options=rate.attack[8:],
        benchmark=rate.benchmark,
        version=rate.version,
        model=rate.model,
        defense=rate.defense,
        adaptive=own,
        asr=rate.value,
        ci_low=rate.ci_low,
        ci_high=rate.ci_high,
        n=rate.n,
        errors=rate.errors,
    )


def build_transfer_grids(found: TransferMatrix) -> Iterator[Grid]:
    """One matrix for each benchmark and version: a row for what was optimised, a column for what was met."""
    for (benchmark, version), group in groupby(found.rows, lambda row: (row.benchmark, row.version)):
        rows = list(group)
        met = sorted({(row.model, row.defense) for row in rows})
        lines: defaultdict[str, dict[tuple[str, str], TransferRow]] = defaultdict(dict)
        for row in rows:
            lines[row.optimised_for + row.options][row.model, row.defense] = row
        yield Grid(
            caption=f"Targeted ASR of texts by what they were optimised for, {benchmark} {version}",
            header=("optimised for", *(f"{model} / {defense}" for model, defense in met)),
            rows=[cells(name, *(_build_cell(of.get(place)) for place in met)) for name, of in lines.items()],
            names=1,
            wraps=frozenset({0}),
            captioned=True,
        )


def _build_cell(row: TransferRow | None) -> GridCell:
    if row is None:
        return GridCell(MISSING)
    number = number_cell(Number(row.asr, row.ci_low, row.ci_high, row.n))
    return number._replace(text=f"{number.text}{ADAPTIVE_MARK if row.adaptive else ''}")


def write_transfer_notes(found: TransferMatrix) -> Iterator[str]:
    """What has to be said below the matrix."""
    yield (
        f"Only numbers with {ADAPTIVE_MARK} are adaptive: their texts were optimised against this model with"
        " this defense and no other defense's file has them; and once the model is another version of itself,"
        " they are static. All others are a transfer. Mean of the suites over all variants that were run."
    )
    if errors := sum(row.errors for row in found.rows):
        yield f"Errored cases, not counted: {errors}."
    for label in found.unknown:
        yield f"{label}: the folder has no file with its texts (or attack.name was set); left out."
