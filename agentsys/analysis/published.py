"""The numbers that the AgentSys paper prints, and the short names it uses for models: both plain data."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agentsys.analysis.metrics.rates import TARGETED_ASR
from agentsys.records.pipeline_names import split_alone

_PACKAGE = Path(__file__).parents[1]
PAPER_MODEL = "gpt-4o-mini"
"""The model of the paper's Figures 2 to 4 and Tables 1 to 4."""
_OUR_NAMES = {"asr": TARGETED_ASR}
"""The data's name of a metric -> ours, where they differ."""


@dataclass(frozen=True, slots=True)
class PublishedNumber:
    """One number as printed in the paper."""

    source: str
    """Where it stands: `table1` to `table7`, `figure2`, `figure3b`, `figure4a`, `figure4b`."""
    benchmark: str
    model: str
    defense: str
    attack: str
    """`none` for benign numbers."""
    suite: str
    """A suite, `overall`, or `all` (pooled over suites)."""
    metric: str
    """Our name of the metric; a condition may follow in brackets, e.g. `targeted_asr[length=2]`."""
    value: float
    """Percent, unless the metric says otherwise."""
    note: str


def find_published_dir() -> Path:
    """The folder of the paper's numbers: inside the wheel, or `results/published` of a checkout."""
    in_wheel = _PACKAGE / "published"
    return in_wheel if in_wheel.is_dir() else _PACKAGE.parent / "results" / "published"


@cache
def load_published_numbers() -> tuple[PublishedNumber, ...]:
    """Everything the paper prints that we know of, in its order."""
    numbers = []
    with (find_published_dir() / "agentsys_paper.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            metric, bracket, condition = line.pop("metric").partition("[")
            name, value = _OUR_NAMES.get(metric, metric) + bracket + condition, float(line.pop("value"))
            numbers.append(PublishedNumber(**line, metric=name, value=value))
    return tuple(numbers)


def list_printed_in(source: str) -> list[PublishedNumber]:
    """The numbers of a table or figure, in the paper's order."""
    return [number for number in load_published_numbers() if number.source == source]


@cache
def load_printed_overall(benchmark: str) -> Mapping[tuple[str, str, str], float]:
    """The overall numbers of the paper's tables for `PAPER_MODEL`: defense, attack, our metric -> value."""
    return {
        (one.defense, one.attack, one.metric): one.value
        for one in load_published_numbers()
        if (one.benchmark, one.model, one.suite) == (benchmark, PAPER_MODEL, "overall")
    }


@cache
def load_model_names() -> Mapping[str, str]:
    """A model's name in runs (a provider's id, a published pipeline) -> the paper's short name."""
    with (find_published_dir() / "model_names.csv").open(encoding="utf-8", newline="") as file:
        return {line["name"]: line["short"] for line in csv.DictReader(file)}


REPLAY = "replay:"
"""Begins the name of a model that answered from recorded runs; their pipeline's name follows."""


def shorten_model(name: str) -> str:
    """The paper's name of a model, or of the one whose recorded runs it replays; any other keeps its own."""
    recorded = split_alone(name.removeprefix(REPLAY)).model if name.startswith(REPLAY) else name
    return load_model_names().get(recorded, name)
