"""The published runs give the figures that the paper prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agentsys.analysis.metrics.rates import MetricRow, measure
from agentsys.records.case_reader import read_cases

_SUITES = ("banking", "slack", "travel", "workspace", "overall")
_GPT_4O_MINI = {
    "benign_utility": (50.00, 66.67, 55.00, 82.50, 63.54),
    "utility_under_attack": (38.19, 48.57, 47.14, 59.17, 48.27),
    "targeted_asr": (34.03, 57.14, 13.57, 17.92, 30.66),
}


def _numbers(folder: Path) -> dict[tuple[str, str], MetricRow]:
    return {(row.metric, row.suite): row for row in measure(read_cases([folder]).cases)}


def test_gpt_4o_mini_without_defense_is_the_papers_row(published: Callable[[str], Path]) -> None:
    numbers = _numbers(published("agentdojo-gpt-4o-mini-2024-07-18"))
    for metric, expected in _GPT_4O_MINI.items():
        assert [round(numbers[metric, suite].value, 2) for suite in _SUITES] == list(expected)
    assert round(numbers["defense_quality", "overall"].value, 2) == 44.06
    assert {row.model for row in numbers.values()} == {"gpt-4o-mini-2024-07-18"}
    assert (numbers["benign_utility", "overall"].n, numbers["targeted_asr", "overall"].n) == (97, 629)
    assert {row.attack for row in numbers.values() if row.metric == "benign_utility"} == {"none"}


def test_tool_filter_is_imported_with_its_defense_name_and_figures(published: Callable[[str], Path]) -> None:
    numbers = _numbers(published("agentdojo-gpt-4o-2024-05-13-tool_filter"))
    metrics = ("benign_utility", "utility_under_attack", "targeted_asr")
    assert [round(numbers[metric, "overall"].value, 2) for metric in metrics] == [76.80, 56.56, 7.39]
    assert {(row.model, row.defense) for row in numbers.values()} == {("gpt-4o-2024-05-13", "tool_filter")}


def test_injection_tasks_run_alone_are_read_and_not_counted(published: Callable[[str], Path]) -> None:
    cases = read_cases([published("agentdojo-gpt-4o-mini-2024-07-18")]).cases
    assert (len(cases), sum(case.is_injection_task_alone for case in cases)) == (753, 27)


def test_new_style_published_runs_are_read_and_the_unfinished_one_named(
    published: Callable[[str], Path],
) -> None:
    reading = read_cases([published("melon-gpt-4o-mini-2024-07-18")])
    assert {case.version for case in reading.cases} == {"v1.2.2"}
    assert (len(reading.cases), [skip.reason for skip in reading.skipped_files]) == (
        153,
        ["no `utility` in it: the run was not finished"],
    )
