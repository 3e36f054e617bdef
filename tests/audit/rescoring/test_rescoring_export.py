"""Re-scored records on disk: AgentDojo's loader and ours read them, originals stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from agentdojo.benchmark import load_task_results
from stored_examples import attacked, drift, in_blocks, published, stored

from agentsys.audit.rescoring.rescore import rescore_records
from agentsys.audit.rescoring.rescoring_export import write_rescored
from agentsys.errors import ConfigError
from agentsys.records.case_reader import read_cases


def rewritten(runs: Path, version: str = "v1.2.2") -> Path:
    out = runs.parent / "out"
    write_rescored(rescore_records([runs], version).cases, out)
    return out


@pytest.mark.parametrize("content_form", ["strings", "blocks"])
def test_agentdojos_records_are_read_by_its_loader_and_ours(tmp_path: Path, content_form: str) -> None:
    content = attacked(security=False)
    if content_form == "blocks":
        content |= {"messages": in_blocks(content["messages"]), "agentdojo_package_version": "0.1.35"}
    stored(tmp_path / "runs", content)
    out = rewritten(tmp_path / "runs")
    loaded = load_task_results("some-model", "banking", "user_task_0", "direct", "injection_task_0", out)
    assert (loaded.utility, loaded.security) == (False, True)
    assert loaded.messages[0]["content"] == [{"type": "text", "content": "Pay the bill"}]
    (row,) = read_cases([out]).cases
    assert (row.version, row.injection_success, row.notes) == ("v1.2.2", True, ())


def test_drifts_records_stay_drifts_for_us_and_are_read_by_agentdojo(tmp_path: Path) -> None:
    stored(tmp_path / "runs", drift())
    out = rewritten(tmp_path / "runs")
    loaded = load_task_results("some-model", "banking", "user_task_0", "direct", "injection_task_0", out)
    assert (loaded.utility, loaded.security, len(loaded.messages)) == (True, False, 6)
    (row,) = read_cases([out]).cases
    assert (row.defense, row.version, row.utility, row.notes) == ("drift", "v1.2.2", True, ())
    assert len(rescore_records([out]).cases) == 1  # and they can be re-scored once more


def test_our_records_change_version_folder_and_scores_and_say_so(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    run_cases(["model=simulated", "attack=direct", "benchmark.suites=[banking]", "limit_per_suite=1"])
    (before,) = read_cases([tmp_path / "runs"]).cases
    (after,) = read_cases([rewritten(tmp_path / "runs", "v1.1")]).cases
    assert (before.version, after.version) == ("v1.2.2", "v1.1")
    assert "agentdojo-v1.1/" in after.source and after.simulated
    assert after.notes[-1] == "re-scored under v1.1; was v1.2.2"


def test_originals_stay_byte_for_byte(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs", attacked(security=False))
    content = path.read_bytes()
    rewritten(tmp_path / "runs")
    assert path.read_bytes() == content


def test_writing_onto_the_originals_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = stored(tmp_path, attacked(security=False))
    content = path.read_bytes()
    with pytest.raises(ConfigError, match="is one of the records themselves"):
        write_rescored(rescore_records([tmp_path], "v1.2.2").cases, tmp_path)
    assert path.read_bytes() == content


def test_two_records_for_one_file_are_refused(tmp_path: Path) -> None:
    stored(tmp_path / "runs", attacked())
    stored(tmp_path / "runs", drift(), "drift.json")
    with pytest.raises(ConfigError, match="would both be written to"):
        rewritten(tmp_path / "runs")
    assert not (tmp_path / "out").exists()


def test_names_in_a_file_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    stored(tmp_path / "runs", published(pipeline_name="../../evil/x"), "a.json")
    out = rewritten(tmp_path / "runs")
    (path,) = out.rglob("*.json")
    assert path.relative_to(out).parts[1:] == ("banking", "user_task_0", "none", "none.json")
    assert orjson.loads(path.read_bytes())["pipeline_name"] == "../../evil/x"
    assert {entry.name for entry in tmp_path.iterdir()} == {"runs", "out"}
