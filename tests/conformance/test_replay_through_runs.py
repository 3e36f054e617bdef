"""Published gpt-4o-mini answers through our own plan, runner, store and tables."""

from __future__ import annotations

import tarfile
from pathlib import Path

import orjson
import pytest
from small_runs import Silent, records_in

TRACES = Path(__file__).parents[2].parent / "shared/data/traces"
MINI, FILTERED = "gpt-4o-mini-2024-07-18", "gpt-4o-2024-05-13-tool_filter"
ARCHIVE = TRACES / f"agentdojo-{MINI}.tar.gz"
KNOWN = {("workspace", "user_task_16", "injection_task_4"), ("workspace", "user_task_39", "injection_task_4")}
"""Recorded as "not carried out" although the recorded agent sent the very mail that the check asks for."""


@pytest.mark.slow
def test_replayed_runs_score_as_they_were_recorded(tmp_path: Path) -> None:
    from agentsys.analysis.metrics.rates import measure
    from agentsys.records.case_reader import read_cases
    from agentsys.runs.run_session import prepare_session

    if not ARCHIVE.exists():
        pytest.skip(f"the published runs are not here ({ARCHIVE.name})")
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(tmp_path / "traces", filter="data")
    session = prepare_session(
        [
            "model=replay",
            f"model.traces={tmp_path / 'traces'}",
            "attack=none,important_instructions",
            "benchmark.version=v1.1",
            f"logdir={tmp_path / 'runs'}",
        ]
    )
    outcome = session.execute(Silent())
    assert (outcome.finished, outcome.errors) == (726, 0)

    utility, security = 0, set()
    traces = next((tmp_path / "traces").iterdir())
    for path, ours in records_in(tmp_path / "runs").items():
        _, suite, user_task, attack, file = path.split("/")
        recorded = orjson.loads((traces / suite / user_task / attack / file).read_bytes())
        utility += ours["utility"] == recorded["utility"]
        if attack != "none" and ours["security"] != recorded["security"]:
            security.add((suite, user_task, file.removesuffix(".json")))
    assert utility == 726
    assert security == KNOWN

    overall = {
        row.metric: round(row.value, 2)
        for row in measure(read_cases([tmp_path / "runs"]).cases)
        if row.suite == "overall"
    }
    assert (overall["benign_utility"], overall["utility_under_attack"]) == (63.54, 48.27)
    assert overall["targeted_asr"] == pytest.approx(30.66 + 2 / 240 * 100 / 4, abs=0.01)


def unpacked(folder: Path, *pipelines: str) -> Path:
    for name in pipelines:
        archive = TRACES / f"agentdojo-{name}.tar.gz"
        if not archive.exists():
            pytest.skip(f"the published runs are not here ({archive.name})")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder


@pytest.mark.slow
def test_two_pipelines_of_one_folder_go_into_one_log_folder_and_fill_their_rows(tmp_path: Path) -> None:
    from agentsys.analysis.paper.paper_tables import TABLES, fill_table
    from agentsys.analysis.tables.results_report import build_report
    from agentsys.records.case_reader import read_cases
    from agentsys.runs.run_session import Session, prepare_session

    traces = unpacked(tmp_path / "traces", MINI, FILTERED)

    def replayed(pipelines: str, defenses: str) -> Session:
        return prepare_session(
            [
                "model=replay",
                f"model.traces={traces}",
                f"model.pipeline={pipelines}",
                f"defense={defenses}",
                "benchmark.version=v1",
                "user_tasks=[0,1,2,3]",
                f"logdir={tmp_path / 'runs'}",
            ]
        )

    both = replayed(f"{MINI},{FILTERED}", "none,tool_filter_compat")
    assert (len(both.plan.open_jobs), len({job.case.key for job in both.plan.jobs})) == (64, 64)
    both.execute(Silent())
    assert replayed(MINI, "none").plan.open_jobs == ()
    reading = read_cases([tmp_path / "runs"])
    ok = [case for case in reading.cases if case.status == "ok"]
    recorded = {
        (name, path.parts[-4], path.parts[-3]): orjson.loads(path.read_bytes())["utility"]
        for name in (MINI, FILTERED)
        for path in (traces / name).glob("*/user_task_[0123]/none/none.json")
    }
    ours = {(case.model.removeprefix("replay:"), case.suite, case.user_task_id): case.utility for case in ok}
    assert ours == recorded, "each answers from its own records, and only under its own defense"
    assert {(case.model, case.defense) for case in ok} == {
        (f"replay:{MINI}", "none"),
        (f"replay:{FILTERED}", "tool_filter_compat"),
    }
    (filled,) = [
        row
        for row in fill_table(TABLES[2], reading.cases).rows
        if (row.model, row.defense) == ("gpt-4o-mini", "none")
    ]
    assert filled.cells[0].paper == 63.54
    assert filled.cells[0].ours is not None
    differ = [note for note in build_report(reading).notes if "texts differed from the record in" in note]
    assert len(differ) == 2
