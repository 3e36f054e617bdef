"""Runs of a victim: drawn from its profile, repeatable, coupled between defenses, marked everywhere."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from matplotlib.text import Text
from small_runs import Silent, records_in
from typer.testing import CliRunner

import agentsys.api
from agentsys.analysis.figures.catalog import FIGURES, make_figure
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.simulated.victim.profile import load_profile, profile_path
from agentsys.records.load import load_runs
from agentsys.records.reading import read_cases
from agentsys.runs.session import prepare
from agentsys.view.measured import shown_numbers

LABEL = "simulated, fitted to gpt-4o-mini (629 cases, 55648d15)"
VICTIM = ["model=simulated", "model.victim=gpt-4o-mini", "benchmark.version=v1", "preflight=false"]
GRID = ["benchmark.suites=[slack]", "attack=none,important_instructions", "limit=8"]


def ran(logdir: Path, *overrides: str) -> list[dict[str, Any]]:
    session = prepare([*VICTIM, *GRID, f"logdir={logdir}", *overrides])
    outcome = session.execute(Silent())
    assert outcome.errors == 0
    return list(records_in(logdir).values())


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("victim")
    ran(folder, "defense=none,tool_filter,progent,prompt_sandwiching")
    return folder


def obeyed(records: list[dict[str, Any]], defense: str) -> set[tuple[str, str]]:
    return {
        (r["user_task_id"], r["injection_task_id"])
        for r in records
        if r["agentsys"]["case"]["defense"] == defense and r["injection_task_id"] and r["security"]
    }


def test_a_record_says_what_its_number_is(runs: Path) -> None:
    records = list(records_in(runs).values())
    kinds = {r["agentsys"]["case"]["defense"]: r["agentsys"]["forecast_kind"] for r in records}
    assert kinds == {"none": "fitted", "tool_filter": "structural", "progent": "bound"}
    assert {r["agentsys"]["case"]["model"] for r in records} == {LABEL}
    assert all(r["agentsys"]["simulated"] for r in records)
    frame = load_runs(runs)
    assert set(frame["forecast_kind"]) == {"fitted", "structural", "bound"}


def test_a_defense_can_only_take_successes_away(runs: Path) -> None:
    records = list(records_in(runs).values())
    undefended = obeyed(records, "none")
    assert undefended
    for defense in ("tool_filter", "progent"):
        assert obeyed(records, defense) < undefended


@pytest.mark.slow
def test_the_same_seed_gives_the_same_and_less_susceptibility_a_subset(tmp_path: Path, runs: Path) -> None:
    undefended = obeyed(list(records_in(runs).values()), "none")
    again = ran(tmp_path / "a", "defense=none")
    assert obeyed(again, "none") == undefended
    fewer = obeyed(ran(tmp_path / "b", "defense=none", "model.susceptibility=0.4"), "none")
    assert fewer < undefended
    other = ran(tmp_path / "c", "defense=none", "seed=1")
    assert [r["messages"] for r in other] != [r["messages"] for r in again]


@pytest.mark.slow
def test_sloppiness_takes_the_place_of_the_manners(tmp_path: Path, runs: Path) -> None:
    notes = {note for r in records_in(runs).values() for note in r["agentsys"]["notes"]}
    assert "simulated, sloppiness manners of gpt-4o-mini" in notes
    sloppy = ran(tmp_path, "defense=none", "model.sloppiness=0.1", "attack=none")
    notes = {note for r in sloppy for note in r["agentsys"]["notes"]}
    assert notes == {"simulated, sloppiness 0.1"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["attack=direct"], "runs of important_instructions alone: attack 'direct' cannot be forecast"),
        (["defense=promptarmor"], "cannot forecast defense 'promptarmor'"),
        (["defense=prompt_sandwiching"], r"only rewords: .* an ASR of \d+ to \d+% \(undefended \d+%\)"),
        (["defense=delimiters"], "models differ even in the sign"),
        (["benchmark=asb"], "agentdojo alone: asb"),
        (["model.victim=nobody"], "Unknown victim 'nobody'"),
    ],
)
def test_what_cannot_be_forecast_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    base = [o for o in VICTIM if not (o.startswith("benchmark.version") and "benchmark=asb" in overrides)]
    with pytest.raises(ConfigError, match=message):
        prepare([*base, "attack=important_instructions", f"logdir={tmp_path}", *overrides])


@pytest.mark.slow
def test_a_host_that_dropped_calls_is_not_forecast_under_a_defense(tmp_path: Path) -> None:
    read = yaml.safe_load(profile_path("gpt-4o-mini").read_text(encoding="utf-8"))
    path = tmp_path / "crippled.yaml"
    path.write_text(yaml.safe_dump(read | {"name": "poor", "usable_for": ["undefended"]}), encoding="utf-8")
    given = [*VICTIM, *GRID, f"model.victim={path}", f"logdir={tmp_path / 'runs'}"]
    assert prepare([*given, "defense=none"]).plan.jobs
    with pytest.raises(ConfigError, match="undefended forecasts alone"):
        prepare([*given, "defense=tool_filter"])


@pytest.mark.slow
def test_goals_without_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    given = ["model=simulated", "model.victim=gpt-4o-mini", "benchmark.suites=[workspace]", "preflight=false"]
    session = prepare([*given, "attack=important_instructions", f"logdir={tmp_path}"])
    assert len(session.plan.jobs) == 40 * 6
    (outlook,) = session.outlooks
    assert (outlook.kind, outlook.cases, outlook.defense, outlook.low) == ("no runs", 320, None, None)
    (line,) = [found.line for found in session.plan.skipped]
    assert line == (
        "320 cases left out: important_instructions has no runs of gpt-4o-mini for the goals of 320 pairs."
    )


def test_a_changed_profile_is_another_configuration(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = profile_path("gpt-4o-mini").read_text(encoding="utf-8")
    given = [*VICTIM, *GRID[:1], f"model.victim={path}", f"logdir={tmp_path / 'runs'}", "limit=1"]
    hashes = []
    for changed in (text, text.replace("attacks:", "attacks: ", 1)):
        path.write_text(changed, encoding="utf-8")
        hashes.append(prepare(given).settings[0].config_hash)
    assert hashes[0] != hashes[1]
    assert load_profile(str(path)).label == LABEL


def test_without_a_victim_the_setting_leaves_no_trace(tmp_path: Path) -> None:
    session = prepare(["model=simulated", *GRID[:1], "limit=1", "attack=none", f"logdir={tmp_path}"])
    (settings,) = session.settings
    assert "victim" not in settings.identity["model"] and "files" not in settings.identity
    session.execute(Silent())
    (record,) = records_in(tmp_path).values()
    assert "forecast_kind" not in record["agentsys"]
    assert record["agentsys"]["case"]["model"] == "simulated"


EVERY_FORM = ("table", "markdown", "latex", "html", "csv", "json", "parquet")


def outputs(runs: Path, to: Path) -> Iterator[tuple[str, str]]:
    """Name and text of everything that a command writes of these runs."""
    folder = str(runs)
    commands = [["results", folder], ["results", folder, "--full"], ["compare", folder], ["measures", folder]]
    asked = [(command, form) for command in [*commands, ["table", "2", folder]] for form in EVERY_FORM]
    asked += [(["table", str(number), folder], "markdown") for number in (1, 3, 4, 5, 6, 7)]
    for command, form in asked:
        out = to / "out"
        done = CliRunner().invoke(app, [*command, "--format", form, "--out", str(out)])
        assert done.exit_code == 0, (command, form, done.output, done.exception)
        yield " ".join([*command[:2], form]), _text(out, form)
    page = to / "page.html"
    assert CliRunner().invoke(app, ["report", folder, "--out", str(page)]).exit_code == 0
    yield "report", page.read_text(encoding="utf-8")
    yield "view", shown_numbers(read_cases([runs]), [runs], so_far=False).html
    yield "frame", load_runs(runs).to_csv()
    found = agentsys.api.results(runs).frame
    assert set(found["forecast_kind"]) == {"fitted", "structural", "bound", "factor"}
    yield "results in Python", found.to_csv()
    yield "cases", " ".join({case.shown_model for case in read_cases([runs]).cases})
    yield "plan-size", CliRunner().invoke(app, ["plan-size", "benchmark.suites=[slack]"]).stdout


@pytest.mark.slow
def test_an_export_to_inspect_is_marked(runs: Path, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")
    logs = tmp_path / "logs"
    assert CliRunner().invoke(app, ["export", "inspect", str(runs), "--out", str(logs)]).exit_code == 0
    assert LABEL in _unpacked(logs)


@pytest.mark.slow
def test_what_searches_or_replays_texts_is_no_forecast(tmp_path: Path, runs: Path) -> None:
    """`budget` and the tables of `audit` that are made of runs need attacks that a victim has no runs of."""
    for attack in ("pair", "tap", "cached"):
        with pytest.raises(ConfigError):
            prepare([*VICTIM, "defense=none", f"attack={attack}", f"logdir={tmp_path}"])
    done = CliRunner().invoke(app, ["budget", str(runs)])
    assert "No searches" in str(done.exception)


def _text(path: Path, form: str) -> str:
    if form != "parquet":
        return path.read_text(encoding="utf-8")
    return pandas.read_parquet(path).to_csv()


def _unpacked(logs: Path) -> str:
    import zipfile

    texts = []
    for path in logs.rglob("*"):
        if path.is_file() and zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                texts += [packed.read(name).decode("utf-8", "replace") for name in packed.namelist()]
        elif path.is_file():
            texts.append(path.read_text(encoding="utf-8", errors="replace"))
    return "".join(texts)


def plain(text: str) -> str:
    """A text without what a table's folding, Markdown, LaTeX and HTML put into a name."""
    return " ".join(text.replace("\\", "").replace("&#39;", "'").split())


@pytest.mark.slow
def test_a_forecast_is_marked_wherever_it_stands(runs: Path, tmp_path: Path) -> None:
    for name, text in outputs(runs, tmp_path):
        assert LABEL in plain(text), f"{name} does not say whose forecast this is: {text[:800]}"


@pytest.mark.slow
@pytest.mark.parametrize("figure", sorted(FIGURES))
def test_a_figure_of_a_victim_is_marked(figure: str, runs: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["figure", figure, str(runs), "--out", str(tmp_path)])
    if done.exit_code:
        pytest.skip(f"nothing to draw: {done.exception}")
    (numbers,) = tmp_path.rglob("*.csv")
    drawn = make_figure(FIGURES[figure], read_cases([runs]).cases).figure
    words = plain(" ".join(text.get_text() for text in drawn.findobj(Text)))
    with numbers.open(encoding="utf-8", newline="") as file:
        ours = [line for line in csv.DictReader(file) if line["origin"] != "paper"]
    assert all(line["model"] == LABEL and line["simulated"] == "True" for line in ours)
    assert ours or figure == "2"  # which shows AgentSys alone, and this run has none
    assert not ours or (LABEL in words and "SIMULATED" in words)


@pytest.mark.slow
def test_programs_are_told_the_kind_of_each_number(runs: Path) -> None:
    for command in ("results", "measures", "compare"):
        done = CliRunner().invoke(app, [command, str(runs), "--format", "json"])
        read = json.loads(done.stdout)
        rows = read["differences"] if isinstance(read, dict) else read
        kinds = {row["defense"]: row["forecast_kind"] for row in rows}
        assert kinds["progent"] == "bound" and kinds["tool_filter"] == "structural", command
    shown = CliRunner().invoke(app, ["results", str(runs), "--full"], env={"COLUMNS": "200"}).stdout
    assert "bound (an upper bound of the ASR): progent" in plain(shown)
    assert "Untested roles" in shown and "progent (policy)" in plain(shown)


def test_a_defense_that_only_rewords_is_a_row_with_an_interval_and_no_number(runs: Path) -> None:
    (outlook,) = read_cases([runs]).outlooks
    assert (outlook.defense, outlook.kind, outlook.cases) == ("prompt_sandwiching", "factor", 8)
    assert outlook.low is not None and outlook.high is not None and 0 < outlook.low < outlook.high < 100
    assert not list(runs.glob("*prompt_sandwiching*"))
    rows = json.loads(CliRunner().invoke(app, ["results", str(runs), "--format", "json"]).stdout)
    (row,) = (row for row in rows if row["defense"] == "prompt_sandwiching")
    assert (row["value"], row["n"], row["forecast_kind"]) == (None, 0, "factor")
    assert (row["ci_low"], row["ci_high"]) == (outlook.low, outlook.high)
    screen = CliRunner().invoke(app, ["results", str(runs)], env={"COLUMNS": "110"}).stdout
    (line,) = (line for line in screen.splitlines() if line.startswith("prompt_sandwiching  "))
    assert re.fullmatch(r"prompt_sandwiching( +n/a)+ +\d+-\d+( +n/a)* +0 .*factor *", line), line
    kinds = {line.split()[0]: line.split()[-1] for line in screen.splitlines() if line and line[0].islower()}
    assert (kinds["none"], kinds["progent"]) == ("fitted", "bound†")
    assert read_cases([next(runs.glob("*progent*"))]).outlooks == ()  # a folder of one defense


def test_a_run_without_a_victim_has_neither_column_nor_outlook(tmp_path: Path) -> None:
    given = ["model=simulated", *GRID[:1], "limit=1", "attack=none", f"logdir={tmp_path}"]
    session = prepare([*given, "preflight=false", "defense=none,prompt_sandwiching"])
    assert session.execute(Silent()).finished == 2
    (stored,) = (tmp_path / ".agentsys" / "plans").iterdir()
    assert set(json.loads(stored.read_bytes())) == {"cells"}
    for form in ("table", "csv"):
        assert "orecast" not in CliRunner().invoke(app, ["results", str(tmp_path), "--format", form]).stdout


@pytest.mark.slow
def test_susceptibility_scales_an_interval_and_sloppiness_leaves_it_alone(tmp_path: Path, runs: Path) -> None:
    (whole,) = read_cases([runs]).outlooks
    given = [*VICTIM, *GRID, "defense=none,prompt_sandwiching", f"logdir={tmp_path}"]
    (half,) = prepare([*given, "model.susceptibility=0.5", "model.sloppiness=0.05"]).outlooks
    assert whole.low is not None and half.low is not None
    assert half.low == pytest.approx(whole.low / 2, abs=0.1)


@pytest.mark.slow
def test_a_forecast_is_not_tested_against_a_models_own_runs(runs: Path, tmp_path: Path) -> None:
    ours = next(path for path in runs.rglob("slack/*/important_instructions/*.json"))
    stored = json.loads(ours.read_text(encoding="utf-8"))
    del stored["agentsys"]
    target = (
        tmp_path
        / "gpt-4o-mini-2024-07-18"
        / ours.relative_to(runs).relative_to(ours.relative_to(runs).parts[0])
    )
    target.parent.mkdir(parents=True)
    stored["pipeline_name"] = "gpt-4o-mini-2024-07-18"
    target.write_text(json.dumps(stored), encoding="utf-8")
    done = CliRunner().invoke(app, ["compare", str(runs), str(tmp_path), "--by", "model"])
    assert "no test tells them apart" in str(done.exception), done.output
