"""The documented example of a user's own metric: two files outside the package, shown in every format."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, row, store_own
from typer.testing import CliRunner

from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.metrics.rates import measure
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_metric"
ASKED = (
    "--metric",
    "safe_and_useful",
    "--config-dir",
    str(EXAMPLE / "conf"),
    "--plugin-path",
    str(EXAMPLE),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two suites; under `agentsys` three of four attacked cases end well, under `none` one."""
    runs = tmp_path_factory.mktemp("runs")
    for suite in ("banking", "slack"):
        for defense, well in (("none", 1), ("agentsys", 3)):
            for user in range(4):
                fields = {"suite": suite, "defense": defense, "user_task_id": f"user_task_{user}"}
                store_own(runs, case_of(**fields), utility=user < well, security=user >= well)
                store_own(runs, case_of(attack="none", **fields))
    lost = case_of(defense="agentsys", user_task_id="user_task_9")
    store_own(runs, lost, status="error", error_kind="timeout")
    return runs


@pytest.fixture
def made() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("my_metric", EXAMPLE / "my_metric.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module.SafeAndUseful()


def said(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.stderr
    return outcome.stdout


def test_the_example_has_the_shape_of_a_metric(made: Any) -> None:
    assert isinstance(made, Metric)
    assert made.hit(row(attack="none", injection_success=None)) is None


def test_its_rows_have_values_intervals_and_errors(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(said("results", str(folder), *ASKED, "--format", "csv"))))
    found = {(line["defense"], line["suite"]): line for line in rows if line["metric"] == "safe_and_useful"}
    assert len(found) == 8  # two defenses; banking, slack, overall, pooled; attacked cells alone
    assert found["agentsys", "overall"]["value_fraction"] == "0.75"
    assert (found["none", "banking"]["value_fraction"], found["none", "banking"]["n"]) == ("0.25", "4")
    assert (found["agentsys", "banking"]["n"], found["agentsys", "banking"]["errors"]) == ("4", "1")
    low, high = (float(found["agentsys", "pooled"][f"ci_{end}_fraction"]) for end in ("low", "high"))
    assert 0 < low < 0.75 < high
    others = [line for line in rows if line["metric"] != "safe_and_useful"]
    assert others == list(csv.DictReader(io.StringIO(said("results", str(folder), "--format", "csv"))))


def test_a_comparison_has_difference_flips_and_correction(folder: Path) -> None:
    stored = json.loads(said("compare", str(folder), *ASKED, "--format", "json"))
    assert {line["metric"] for line in stored["differences"]} == {"safe_and_useful"}
    overall = next(line for line in stored["differences"] if line["suite"] == "overall")
    assert (overall["difference_fraction"], overall["gained"], overall["lost"], overall["n"]) == (
        0.5,
        4,
        0,
        8,
    )
    assert len(stored["flips"]) == 4


def test_the_shipped_metric_leaves_out_what_no_tool_returned(folder: Path) -> None:
    from agentsys.analysis.metrics.own_metric import AsrWhereReturned

    cases = [row(user_task_id=f"u{u}", exposed_raw=u < 3, injection_success=u == 0) for u in range(5)]
    found = {(line.metric, line.suite): line for line in measure(cases, own=[AsrWhereReturned()])}
    assert found["asr_where_returned", "pooled"].value == pytest.approx(100 / 3)
    assert found["asr_where_returned", "pooled"].n == 3
    assert found["targeted_asr", "pooled"].n == 5


class Odd:
    """A metric that answers as it was told."""

    name = "odd"
    title = "Odd"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def hit(self, case: CaseRow) -> Any:
        return self.answer


def test_errored_cases_are_in_no_metric_whatever_the_rule() -> None:
    cases = [row(), row(status="error", error_kind="context_length", user_task_id="u")]
    (line,) = [
        line
        for line in measure(cases, ErrorRule.AGENTDOJO, own=[Odd(True)])
        if (line.metric, line.suite) == ("odd", "pooled")
    ]
    assert (line.value, line.n, line.errors) == (100.0, 1, 1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class M:\n    name = 'm'\n    title = 'M'\n", "M has no hit"),
        ("class M:\n    def hit(self, case): return True\n", "M has no name and no title"),
        ("class M:\n    name = 'targeted_asr'\n    title = 'M'\n    hit = len\n", "as another metric does"),
    ],
)
def test_what_is_no_metric_is_refused_in_one_line(tmp_path: Path, source: str, message: str) -> None:
    module = f"bad_metric_{abs(hash(message))}"
    (tmp_path / f"{module}.py").write_text(source)
    (tmp_path / "metric").mkdir()
    (tmp_path / "metric" / "bad.yaml").write_text(f"_target_: {module}.M\n")
    with pytest.raises(ConfigError, match=message):
        said(
            "results",
            str(tmp_path),
            "--metric",
            "bad",
            "--config-dir",
            str(tmp_path),
            "--plugin-path",
            str(tmp_path),
        )
