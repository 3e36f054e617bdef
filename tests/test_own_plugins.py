"""The examples of a user's own defense, metric, model and suite, and of sweeps by Hydra: nothing is registered."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from paid_server import calls, fails, paid_server, says
from small_runs import Silent, records_in
from stored_cases import case_of, row, store_own

from agentsys.analysis.metrics.rates import measure
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.cli import main
from agentsys.errors import ConfigError
from agentsys.plugins import ChatRequest, ErrorKind, ModelError, ToolSpec, user
from agentsys.records.case_reader import load_runs
from agentsys.records.case_row import CaseRow
from agentsys.runs.run_session import prepare_session

ROOT = Path(__file__).parents[1]
OWN_DEFENSE = ROOT / "examples" / "own_defense"


@pytest.mark.parametrize(
    "defense", [pytest.param("my_defense", marks=pytest.mark.slow), "judging_defense", "call_judge"]
)
def test_an_example_runs_from_the_command_line_and_stops_the_attack(tmp_path: Path, defense: str) -> None:
    own = ("--config-dir", OWN_DEFENSE / "conf", "--plugin-path", OWN_DEFENSE, "model=simulated")
    # Not user_task_0: its injection stands where the data it needs would be.
    tasks = ("benchmark.suites=[banking]", "user_tasks=[9]", "injection_tasks=[3,5]")
    chosen = (f"defense=none,{defense}", "attack=important_instructions", f"logdir={tmp_path / 'runs'}")
    command_output("run", *own, *tasks, *chosen)
    cases = load_runs(tmp_path / "runs")
    undefended, defended = (cases[cases["defense"] == name] for name in ("none", defense))
    assert list(undefended["injection_success"]) == [True, True]
    assert list(defended["injection_success"]) == [False, False]
    assert list(defended["utility"]) == [True, True]


def test_a_forgotten_plugin_path_is_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(OWN_DEFENSE)])
    monkeypatch.delitem(sys.modules, "my_defense", raising=False)
    words = ["--config-dir", str(OWN_DEFENSE / "conf"), "defense=my_defense", f"logdir={tmp_path / 'runs'}"]
    monkeypatch.setattr(sys, "argv", ["agentsys", "run", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "my_defense" in line
    assert "--plugin-path" in line


OWN_METRIC = ROOT / "examples" / "own_metric"
ASKED = ("--metric", "safe_and_useful", "--config-dir", OWN_METRIC / "conf", "--plugin-path", OWN_METRIC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two suites; under `agentsys` three of four attacked cases end well, under `none` one."""
    runs = tmp_path_factory.mktemp("runs")
    for suite in ("banking", "slack"):
        for defense, well in (("none", 1), ("agentsys", 3)):
            for task in range(4):
                fields = {"suite": suite, "defense": defense, "user_task_id": f"user_task_{task}"}
                store_own(runs, case_of(**fields), utility=task < well, security=task >= well)
                store_own(runs, case_of(attack="none", **fields))
    lost = case_of(defense="agentsys", user_task_id="user_task_9")
    store_own(runs, lost, status="error", error_kind="timeout")
    return runs


def test_its_rows_have_values_intervals_and_errors(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(command_output("results", folder, *ASKED, "--format", "csv"))))
    found = {(line["defense"], line["suite"]): line for line in rows if line["metric"] == "safe_and_useful"}
    assert len(found) == 8  # two defenses; banking, slack, overall, pooled; attacked cells alone
    assert found["agentsys", "overall"]["value_fraction"] == "0.75"
    assert (found["none", "banking"]["value_fraction"], found["none", "banking"]["n"]) == ("0.25", "4")
    assert (found["agentsys", "banking"]["n"], found["agentsys", "banking"]["errors"]) == ("4", "1")
    low, high = (float(found["agentsys", "pooled"][f"ci_{end}_fraction"]) for end in ("low", "high"))
    assert 0 < low < 0.75 < high
    others = [line for line in rows if line["metric"] != "safe_and_useful"]
    assert others == list(csv.DictReader(io.StringIO(command_output("results", folder, "--format", "csv"))))


def test_a_comparison_has_difference_flips_and_correction(folder: Path) -> None:
    stored = json.loads(command_output("compare", folder, *ASKED, "--format", "json"))
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

    returned = (True, True, True, False, None)
    cases = [
        row(user_task_id=f"u{u}", exposed_raw=seen, injection_success=u == 0)
        for u, seen in enumerate(returned)
    ]
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
        command_output(
            "results", tmp_path, "--metric", "bad", "--config-dir", tmp_path, "--plugin-path", tmp_path
        )


OWN_MODEL = Path(__file__).parents[1] / "examples" / "own_model"
MODEL_OPTIONS = ["--config-dir", str(OWN_MODEL / "conf"), "--plugin-path", str(OWN_MODEL)]


def _own_model(monkeypatch: pytest.MonkeyPatch, url: str, key: str | None = None):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(OWN_MODEL))
    from my_model import MyModel  # type: ignore[import-not-found]

    return MyModel("my_model", "m", url, key)


def test_the_example_runs_and_its_name_is_in_the_records(tmp_path: Path) -> None:
    with paid_server(lambda number, body: says("Done.")) as server:
        chosen = ["model=my_model", f"model.base_url={server.url}", "model.cache=false", "preflight=false"]
        tasks = ["defense=none", "attack=none", "benchmark.suites=banking", "user_tasks=3"]
        command_output("run", *MODEL_OPTIONS, *chosen, *tasks, f"logdir={tmp_path}")
    (case,) = load_runs(tmp_path).to_dict("records")
    assert (case["model"], case["status"], case["prompt_tokens"]) == ("my_model", "ok", 1000)
    assert case["cost_usd"] == pytest.approx(1500 * 0.88e-6)


def test_a_tool_call_is_read_and_sent_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with paid_server(lambda number, body: calls("send_money", '{"amount": 3}')) as server:
        model = _own_model(monkeypatch, server.url)
        reply = model.complete(ChatRequest([user("Pay.")], [ToolSpec("send_money", "Send.", {})]))
        (call,) = reply.message["tool_calls"]
        assert (call.function, dict(call.args)) == ("send_money", {"amount": 3})
        model.complete(ChatRequest([user("Pay."), reply.message]))
    assert server.asked[0]["tools"][0]["function"]["name"] == "send_money"
    assert server.asked[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"amount": 3}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ErrorKind.BAD_KEY), (429, ErrorKind.RATE_LIMITED), (503, ErrorKind.SERVER_ERROR)],
)
def test_a_failing_server_is_an_error_of_its_kind(
    status: int, kind: ErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paid_server(lambda number, body: fails(status)) as server, pytest.raises(ModelError) as caught:
        _own_model(monkeypatch, server.url).complete(ChatRequest([user("Pay.")]))
    assert caught.value.kind is kind


def test_a_reply_of_another_form_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = paid_server(lambda number, body: (200, {"choices": []}))
    with empty as server, pytest.raises(ModelError) as caught:
        _own_model(monkeypatch, server.url).complete(ChatRequest([user("Pay.")]))
    assert caught.value.kind is ErrorKind.MALFORMED_REPLY


def test_a_key_that_is_not_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="set NO_SUCH_KEY"):
        _own_model(monkeypatch, "http://127.0.0.1:9/v1", "NO_SUCH_KEY")


OWN_SUITE = Path(__file__).parents[1] / "examples" / "own_suite"


@pytest.fixture(scope="module")
def suite_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    suite_runs = tmp_path_factory.mktemp("own_suite")
    chosen = ["benchmark=library", "defense=none,agentsys", "attack=none,important_instructions"]
    own = ["--config-dir", str(OWN_SUITE / "conf"), "--plugin-path", str(OWN_SUITE)]
    command_output("run", *own, *chosen, f"logdir={suite_runs}")
    return suite_runs


def test_the_suites_tasks_can_be_solved_and_attacked(suite_runs: Path) -> None:
    cases = load_runs(suite_runs)
    assert len(cases) == 8
    assert not cases["error_kind"].notna().any()
    none, agentsys = (cases[cases["defense"] == name] for name in ("none", "agentsys"))
    assert none["injection_success"].dropna().tolist() == [True, True]
    assert agentsys["injection_success"].dropna().tolist() == [False, False]
    assert agentsys[agentsys["injection_task_id"].isna()]["utility"].all()


def test_it_is_reported_under_its_own_name(suite_runs: Path) -> None:
    assert set(load_runs(suite_runs)["benchmark"]) == {"library"}
    shown = command_output("results", suite_runs)
    assert "on library v1" in shown and "on agentdojo" not in shown


SWEEP = Path(__file__).parents[1] / "examples" / "hydra_launcher" / "sweep.py"
PLAN = ["model=simulated", "defense=none,agentsys", "benchmark.suites=[slack]", "limit_per_suite=1"]


def swept(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    hydra = [f"hydra.sweep.dir={folder / 'hydra'}", f"logdir={folder / 'swept'}"]
    command = [sys.executable, str(SWEEP), "--multirun", *overrides, *hydra]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_the_jobs_of_a_launcher_leave_the_records_of_one_command(launcher: str, tmp_path: Path) -> None:
    if launcher != "basic":
        pytest.importorskip(f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher")
    done = swept(tmp_path, *PLAN, f"hydra/launcher={launcher}")
    assert done.returncode == 0, done.stdout + done.stderr
    prepare_session([*PLAN, f"logdir={tmp_path / 'one'}"]).execute(Silent())
    assert records_in(tmp_path / "swept") == records_in(tmp_path / "one")
    assert len(records_in(tmp_path / "one")) == 2


@pytest.mark.slow
def test_a_job_whose_settings_are_wrong_fails(tmp_path: Path) -> None:
    done = swept(tmp_path, "model=simulated", "limit_per_suite=0")
    assert done.returncode != 0 and "limit_per_suite" in done.stdout + done.stderr
