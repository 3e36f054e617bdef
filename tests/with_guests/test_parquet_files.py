"""Runs as Parquet: `load_runs` gives back what it gave, and calls add up to the cases' own counts."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pandas as pd
import pytest
from stored_cases import case_of, model_call, span, store_own, store_published
from typer.testing import CliRunner

import agentsys
from agentsys.cli import app
from agentsys.errors import ConfigError, Unavailable
from agentsys.records import parquet_files
from agentsys.records.schema import RoleUsage

needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="extra parquet")


def runs_in(folder: Path, *, few: bool = False) -> Path:
    store_own(folder, case_of())
    if few:
        return folder
    spans = [
        span(0, None, "main", calls=[model_call("main", 1, 1, cached=1, reasoning=1, cost_usd=0.1)]),
        span(1, 0, "tool", name="send", decision={"args": {"to": "Z\u00fcrich"}}),
        span(2, 0, "tool", name="send", decision={"args": {}, "error": "no such account"}),
    ]
    usage = {"main": RoleUsage(calls=1, prompt=10, completion=2, cost_usd=None)}
    store_own(folder, case_of(user_task_id="user_task_1"), spans=spans, usage=usage, notes=("a note",))
    store_own(folder, case_of(user_task_id="user_task_2"), status="error", error_kind="timeout")
    store_published(folder)
    (folder / "torn.json").write_text("{")
    return folder


def export(folder: Path, out: Path) -> str:
    ran = CliRunner().invoke(
        app, ["export", "parquet", str(folder), "--out", str(out)], catch_exceptions=False
    )
    assert ran.exit_code == 0, ran.output
    return ran.output


@needs_pyarrow
@pytest.mark.parametrize("few", [True, False])
def test_what_was_written_is_read_back_with_types_and_gaps_and_counts(tmp_path: Path, few: bool) -> None:
    runs, out = runs_in(tmp_path / "runs", few=few), tmp_path / "out"
    export(runs, out)
    first = agentsys.load_runs(runs)
    for path in (out, out / "cases.parquet", [out]):
        again = agentsys.load_runs(path)
        pd.testing.assert_frame_equal(again, first)
        assert again.attrs == first.attrs
    again["calls"].iloc[0]["mine"] = 1
    assert agentsys.load_runs(out)["calls"].tolist() == first["calls"].tolist()
    assert agentsys.results(agentsys.load_runs(out)).frame.equals(agentsys.results(first).frame)


@needs_pyarrow
def test_calls_are_those_that_cases_count_and_join_by_their_source(tmp_path: Path) -> None:
    runs, out = runs_in(tmp_path / "runs"), tmp_path / "out"
    export(runs, out)
    calls, cases = pd.read_parquet(out / "calls.parquet"), agentsys.load_runs(out)
    for source, counted in zip(cases["source"], cases["calls"], strict=True):
        of_case = calls[calls["source"] == source]
        assert Counter(of_case["function"]) == counted
        assert of_case["place"].tolist() == [*range(len(of_case))]
    sent = calls[calls["function"] == "send"]
    assert [orjson.loads(text) for text in sent["args"]] == [{"to": "Z\u00fcrich"}, {}]
    assert sent["error"].iloc[1] == "no such account" and pd.isna(sent["error"].iloc[0])


@needs_pyarrow
def test_group_means_are_those_of_results(tmp_path: Path) -> None:
    runs, out = runs_in(tmp_path / "runs"), tmp_path / "out"
    for at in range(7):
        benign_case = case_of(user_task_id=f"user_task_{at + 10}", attack="none", injection_task_id=None)
        store_own(runs, benign_case, utility=at % 3 == 0)
    export(runs, out)
    cases = pd.read_parquet(out / "cases.parquet")
    benign = cases[(cases["attack"] == "none") & (cases["status"] == "ok")]
    means = benign.groupby(["model", "defense", "suite"])["utility"].mean()
    shown = agentsys.results(runs).frame
    of_suites = shown[(shown["metric"] == "benign_utility") & shown["suite"].isin(benign["suite"])]
    assert len(of_suites)
    for row in of_suites.to_dict(orient="records"):
        model = row["model"].removesuffix(" (simulated)")
        assert means[model, row["defense"], row["suite"]] == pytest.approx(row["value_fraction"], abs=1e-9)


@needs_pyarrow
@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 99])
def test_a_file_of_somebody_else_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cases.parquet").write_bytes(content)
    with pytest.raises(ConfigError, match="is not what `agentsys export parquet` writes"):
        agentsys.load_runs(tmp_path)


@needs_pyarrow
def test_another_table_is_told_and_names_are_for_the_export(tmp_path: Path) -> None:
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="is not what"):
        agentsys.load_runs(tmp_path / "other.parquet")
    with pytest.raises(ConfigError, match="give `names` there"):
        agentsys.load_runs(tmp_path / "other.parquet", names="names.yaml")


@needs_pyarrow
@pytest.mark.parametrize("column", ["utility", "source", "notes"])
def test_an_export_that_lacks_a_column_is_told(tmp_path: Path, column: str) -> None:
    store_own(tmp_path / "runs", case_of())
    export(tmp_path / "runs", tmp_path / "out")
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "out" / "cases.parquet")
    pq.write_table(table.drop_columns([column]), tmp_path / "out" / "cases.parquet")
    with pytest.raises(ConfigError, match="is not what `agentsys export parquet` writes"):
        agentsys.load_runs(tmp_path / "out")


@pytest.mark.parametrize("given", ["", "cases.parquet"])
def test_commands_say_who_reads_an_export(tmp_path: Path, given: str) -> None:
    (tmp_path / "cases.parquet").write_bytes(b"PAR1")
    error: Any = CliRunner().invoke(app, ["results", str(tmp_path / given)]).exception
    assert isinstance(error, ConfigError) and "load_runs" in str(error)


def test_without_the_extra_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_own(tmp_path, case_of())
    monkeypatch.setattr(parquet_files, "find_missing_packages", lambda packages: list(packages))
    error: Any = CliRunner().invoke(app, ["export", "parquet", str(tmp_path)]).exception
    assert isinstance(error, Unavailable) and "agentsys-bench[parquet]" in str(error)
    (tmp_path / "cases.parquet").write_bytes(b"")
    with pytest.raises(Unavailable, match=r"agentsys-bench\[parquet\]"):
        agentsys.load_runs(tmp_path)
