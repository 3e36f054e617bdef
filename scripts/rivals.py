"""The rivals side by side: utility, attack success, tokens, calls and time, as the table of docs/rivals.md.

Usage: python scripts/rivals.py results/runs/rivals [--parsing-averages]

One row per defense of the stored runs: benign utility, then utility under attack / targeted ASR for each
attack (unweighted means of the suites, percent), then what a case without attack takes beside no defense:
tokens as a multiple, model calls more, seconds; then all cases and errors. Simulated models are marked.
`--parsing-averages` adds the averages that the article on tool-result parsing prints (arXiv 2601.04795). They
count the run without attack as one more attack: its utility is in the mean of utilities, and its ASR of 0
makes the mean ASR smaller. They are for setting a run beside that article, and for nothing else.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsys.analysis.metrics.measures import mean_of, tokens_per_role
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    TARGETED_ASR,
    UTILITY_UNDER_ATTACK,
    MetricRow,
    measure,
)
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.grouping import grouped
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.reading import read_cases

BASELINE = "none"


@dataclass(frozen=True)
class Taken:
    """What cases took, means per case; nan where there are none."""

    tokens: float
    calls: float
    seconds: float

    @classmethod
    def of(cls, cases: Sequence[CaseRow]) -> Taken:
        """What these cases took."""
        used = [mean.value for mean in tokens_per_role(cases).values()]
        calls, seconds = (mean_of(measure, cases).value for measure in ("model_calls", "seconds"))
        return cls(sum(used) if used else math.nan, calls, seconds)


@dataclass(frozen=True)
class ParsingAverages:
    """Means over the run without attack and those under each attack, as one article defines them."""

    utility: float
    """Of the benign utility and the utilities under attack, percent."""
    asr: float
    """Of 0 and the targeted ASRs, percent."""
    risk: float
    """Of 0 and each attack's ASR over its utility; nan where an attack leaves no utility."""

    @classmethod
    def of(cls, benign: float, attacked: Sequence[tuple[float, float]]) -> ParsingAverages:
        """The averages.

        Args:
            benign: Benign utility, percent.
            attacked: Utility and targeted ASR under each attack, percent.
        """
        runs = 1 + len(attacked)
        risks = [asr / utility if utility else math.nan for utility, asr in attacked]
        utilities, asrs = [utility for utility, _ in attacked], [asr for _, asr in attacked]
        return cls((benign + sum(utilities)) / runs, sum(asrs) / runs, sum(risks) / runs)


AVERAGES = ("avg UA with benign", "avg ASR with benign", "risk with benign")


def table(cases: Iterable[CaseRow], *, parsing_averages: bool = False) -> list[str]:
    """The table, one line of Markdown after the other; one for each model."""
    return [
        line
        for model, mine in grouped(cases, lambda case: case.shown_model).items()
        for line in (f"**{model}**", "", *_of_model(mine, averages=parsing_averages), "")
    ]


def _of_model(cases: Sequence[CaseRow], *, averages: bool) -> list[str]:
    attacks = sorted({case.attack for case in cases} - {NO_ATTACK})
    numbers = {(r.defense, r.attack, r.metric): r for r in measure(cases) if r.suite == OVERALL}
    groups = grouped(cases, lambda case: case.defense)
    base = Taken.of(_benign(groups.get(BASELINE, [])))
    header = ["Defense", "Benign", *attacks, "Tokens", "Calls", "Seconds", "Cases", "Errors"]
    order = sorted(groups, key=lambda name: (name != BASELINE, name))
    rows = [_row(name, groups[name], attacks, numbers, base) for name in order]
    if averages:
        header += AVERAGES
        rows = [[*row, *_averages(name, attacks, numbers)] for name, row in zip(order, rows, strict=True)]
    return [_line(header), _line(["---"] * len(header)), *map(_line, rows)]


def _row(
    name: str,
    cases: Sequence[CaseRow],
    attacks: Sequence[str],
    numbers: dict[tuple[str, str, str], MetricRow],
    base: Taken,
) -> list[str]:
    took = Taken.of(_benign(cases))
    benign = next((r for (d, _, metric), r in numbers.items() if (d, metric) == (name, BENIGN_UTILITY)), None)
    under = [
        f"{_percent(numbers.get((name, attack, UTILITY_UNDER_ATTACK)))} / "
        f"{_percent(numbers.get((name, attack, TARGETED_ASR)))}"
        for attack in attacks
    ]
    errors = sum(case.status == "error" for case in cases)
    return [
        f"`{name}`",
        _percent(benign),
        *under,
        _number(took.tokens / base.tokens if base.tokens else math.nan, "{:.1f}x"),
        _number(took.calls - base.calls, "{:+.1f}"),
        _number(took.seconds, "{:.2f}"),
        str(len(cases)),
        str(errors),
    ]


def _averages(name: str, attacks: Sequence[str], numbers: dict[tuple[str, str, str], MetricRow]) -> list[str]:
    def value(attack: str, metric: str) -> float:
        found = numbers.get((name, attack, metric))
        return math.nan if found is None else found.value

    under = [(value(one, UTILITY_UNDER_ATTACK), value(one, TARGETED_ASR)) for one in attacks]
    found = ParsingAverages.of(value(NO_ATTACK, BENIGN_UTILITY), under)
    return [_number(number, "{:.2f}") for number in (found.utility, found.asr, found.risk)]


def _benign(cases: Sequence[CaseRow]) -> list[CaseRow]:
    return [case for case in cases if case.attack == NO_ATTACK]


def _percent(row: MetricRow | None) -> str:
    return "n/a" if row is None else _number(row.value, "{:.0f}")


def _number(value: float, form: str) -> str:
    return "n/a" if math.isnan(value) else form.format(value)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table of the folders given."""
    parser = argparse.ArgumentParser(description="Print the table of docs/rivals.md.")
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs")
    parser.add_argument(
        "--parsing-averages", action="store_true", help="add the averages of arXiv 2601.04795"
    )
    given = parser.parse_args()
    print("\n".join(table(read_cases(given.folders).cases, parsing_averages=given.parsing_averages)))


if __name__ == "__main__":
    main()
