"""No server that spoils replies on the wire gets a row that reads valid with another rate than the honest one's."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from damaged_server import BODIES, NAMES, TEXTS, write_damaged_config
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from small_runs import Silent

from agentsys.analysis.metrics.cell_verdict import VALID
from agentsys.analysis.metrics.rates import measure
from agentsys.models.endings import CHAT_ENDINGS
from agentsys.records.case_reader import read_cases
from agentsys.runs.run_session import prepare_session

RATES = ("benign_utility", "utility_under_attack", "targeted_asr")
Rates = dict[tuple[str, str], tuple[float, str]]


@cache
def run_behind(folder: Path, damage: str = "{}") -> Rates:
    """Run eight tasks of a suite, benign and attacked -> (metric, suite) -> its value and its cell's verdict."""
    options: dict[str, Any] = json.loads(damage)
    write_damaged_config(folder / "conf")
    config = folder / "conf" / "model" / "damaged.yaml"
    given = "".join(f"\n{key}: {json.dumps(value)}" for key, value in options.items())
    kept = [line for line in config.read_text().splitlines() if line.partition(":")[0] not in options]
    config.write_text("\n".join(kept) + given + "\n")
    logdir = folder / f"runs{abs(hash(damage))}"
    chosen = ["model=damaged", "attack=none,important_instructions", "benchmark.suites=[banking]"]
    chosen += ["limit_per_suite=8", f"logdir={logdir}", "executor.workers=1"]
    prepare_session(chosen, config_dirs=[folder / "conf"]).execute(Silent())
    rows = [row for row in measure(read_cases([logdir]).cases) if row.metric in RATES]
    return {(row.metric, row.suite): (row.value, row.verdict) for row in rows}


def check_honesty(folder: Path, damage: dict[str, Any]) -> Rates:
    """Hold the sentence of this file's head for one damage."""
    honest, found = run_behind(folder), run_behind(folder, json.dumps(damage, sort_keys=True))
    assert honest["targeted_asr", "overall"][0] > 80 and {verdict for _, verdict in honest.values()} == {
        VALID
    }
    for key, (value, verdict) in found.items():
        assert verdict != VALID or value == honest[key][0], (key, value, honest[key], damage)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


def test_names_that_are_cleaned_leave_the_rates_of_the_honest_server(folder: Path) -> None:
    found = check_honesty(folder, {"names": ["{}<|channel|>commentary", "functions.{}"], "share": 1.0})
    assert found == run_behind(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        *({"texts": [text], "share": 1.0} for text in TEXTS),
        *({"names": [name], "share": 1.0} for name in NAMES),
        *({"bodies": [body], "share": 1.0} for body in BODIES),
        *({"reasons": [reason], "bodies": ["no_calls"]} for reason in ("stop", "network_error", "weather")),
    ],
    ids=str,
)
def test_a_server_with_one_fault_is_right_or_told(folder: Path, damage: dict[str, Any]) -> None:
    check_honesty(folder, damage)


WORDS = st.sampled_from(["", *sorted(CHAT_ENDINGS), "weather", "9"])
MIXTURES = st.fixed_dictionaries(
    {
        "reasons": st.lists(WORDS, min_size=1, max_size=4),
        "names": st.lists(st.sampled_from(["", *NAMES]), min_size=1, max_size=3),
        "texts": st.lists(st.sampled_from(["", "", *TEXTS]), min_size=1, max_size=3),
        "bodies": st.lists(st.sampled_from(BODIES), min_size=1, max_size=3),
        "share": st.sampled_from([0.1, 0.3, 1.0]),
        "luck": st.integers(0, 99),
    }
)


@pytest.mark.slow
@settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(damage=MIXTURES)
def test_twenty_random_mixtures_of_endings_and_names_are_right_or_told(
    folder: Path, damage: dict[str, Any]
) -> None:
    check_honesty(folder, damage)
