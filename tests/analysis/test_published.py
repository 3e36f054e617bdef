"""The paper's numbers as data: complete, consistent with each other, and in our own words for things."""

from __future__ import annotations

import tomllib

import pytest

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK
from agentsys.analysis.paper.paper_tables import PER_CASE, SUITES, TABLES
from agentsys.analysis.published import (
    PublishedNumber,
    model_names,
    printed_in,
    published_dir,
    published_numbers,
    short_model,
)
from agentsys.analysis.statistics.rate_estimates import OVERALL


def test_every_place_of_every_table_has_a_printed_number_or_the_paper_lacks_the_row() -> None:
    for table in TABLES.values():
        spots = {spot for band in table.bands for spot in band.spots if spot and spot[0] != PER_CASE}
        by_row: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
        for number in printed_in(f"table{table.number}"):
            spot = (number.attack, number.suite, number.metric)
            by_row.setdefault((number.model, number.defense), set()).add(spot)
        assert by_row
        assert all(found == spots for found in by_row.values()), table.number


def _by_row(source: str) -> dict[tuple[str, str, str, str], dict[str, float]]:
    rows: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for number in printed_in(source):
        key = (number.model, number.defense, number.attack, number.metric)
        rows.setdefault(key, {})[number.suite] = number.value
    return rows


@pytest.mark.parametrize("source", ["table4", "table5", "table6", "table7"])
def test_the_papers_overall_is_the_mean_of_its_suites(source: str) -> None:
    wrong = {
        key: round(abs(values[OVERALL] - sum(values[suite] for suite in SUITES) / 4), 3)
        for key, values in _by_row(source).items()
        if abs(values[OVERALL] - sum(values[suite] for suite in SUITES) / 4) > 0.0101
    }
    assert wrong == {}


def test_the_figures_numbers_follow_from_the_tables() -> None:
    table2 = {
        (number.defense, number.metric): number.value
        for number in printed_in("table2")
        if number.metric in (BENIGN_UTILITY, TARGETED_ASR)
    }
    for number in printed_in("figure3b"):
        if number.metric == "defense_quality":
            benign, asr = table2[number.defense, BENIGN_UTILITY], table2[number.defense, TARGETED_ASR]
            assert number.value == pytest.approx(benign * (1 - asr / 100), abs=0.011)
    halves = [number.value for number in printed_in("figure4a") if "[" in number.metric]
    assert sum(halves[:2]) == pytest.approx(table2["none", BENIGN_UTILITY], abs=0.011)
    assert sum(halves[2:]) == pytest.approx(table2["agentsys", BENIGN_UTILITY], abs=0.011)


def test_tables_agree_with_each_other_on_what_they_share() -> None:
    def shared(number: PublishedNumber) -> tuple[str, ...]:
        return number.model, number.defense, number.attack, number.suite, number.metric

    seen: dict[tuple[str, ...], float] = {}
    for number in published_numbers():
        if number.metric in (BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR):
            assert seen.setdefault(shared(number), number.value) == number.value


def test_snapshots_are_shown_under_the_papers_names_and_strangers_under_their_own() -> None:
    assert short_model("gpt-4o-mini-2024-07-18") == "gpt-4o-mini"
    assert short_model("claude-3-7-sonnet-20250219") == "claude-3.7-sonnet"
    assert short_model("my-model") == "my-model"
    assert short_model("replay:gpt-4o-mini-2024-07-18") == "gpt-4o-mini"
    assert short_model("replay:gpt-4o-2024-05-13-tool_filter") == "gpt-4o"
    assert short_model("replay:my-model") == "replay:my-model"
    papers = {number.model for number in published_numbers()}
    assert set(model_names().values()) <= papers


def test_the_wheel_and_the_sdist_carry_them() -> None:
    root = published_dir().parents[1]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"]["results/published"] == "agentsys/published"
    assert "/results/published" in build["sdist"]["include"]
