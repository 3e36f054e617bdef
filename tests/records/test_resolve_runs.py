"""Whose run a stored case is: folders before fields, pipelines of one name apart, each case once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, model_call, span, store_own, store_published

from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases, list_case_rows, load_runs, read_cases
from agentsys.records.case_row import CaseRow
from agentsys.records.names_file import NAMES_FILE, SERVED_FILE, RunNames


def foreign(home: Path, folder: str, **fields: Any) -> Path:
    """A file of AgentDojo's runner in a pipeline folder of any name."""
    written = store_published(home / "written", **fields)
    place = (
        home
        / folder
        / written.relative_to(home / "written" / fields.get("pipeline_name", "gpt-4o-2024-05-13"))
    )
    place.parent.mkdir(parents=True, exist_ok=True)
    written.rename(place)
    shutil.rmtree(home / "written")
    return place


def reading_of(*paths: Path, names: Path | None = None) -> LoadedCases:
    """What is read, which must be what `load_runs` gives."""
    found = read_cases(paths, RunNames(names))
    assert list_case_rows(load_runs(paths, names)) == list(found.cases)
    return found


def shown(cases: tuple[CaseRow, ...]) -> list[tuple[str, str]]:
    return sorted((case.table_model, case.defense) for case in cases)


def test_where_folder_and_field_disagree_the_folder_decides_and_it_is_said(tmp_path: Path) -> None:
    foreign(tmp_path, "gpt-4o-mini-progent", pipeline_name="gpt-4o-mini")
    foreign(tmp_path, "meta-secalign-70b", pipeline_name="local")
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("gpt-4o-mini", "progent"), ("meta-secalign-70b", "none")]
    assert found.resolution_notes == (
        f"{tmp_path}/gpt-4o-mini-progent: 1 files name gpt-4o-mini; counted as gpt-4o-mini with progent,"
        " by the folder.",
        f"{tmp_path}/meta-secalign-70b: 1 files name local; counted as meta-secalign-70b, by the folder.",
    )


def test_a_folder_that_names_no_defense_leaves_the_one_that_the_file_names(tmp_path: Path) -> None:
    foreign(tmp_path, "renamed", pipeline_name="gpt-4o-tool_filter")
    assert shown(reading_of(tmp_path).cases) == [("renamed", "tool_filter")]


def test_a_file_or_a_suite_folder_alone_is_named_by_the_same_folder(tmp_path: Path) -> None:
    path = foreign(tmp_path, "gpt-4o-mini-drift", pipeline_name="gpt-4o-mini")
    for given in (path, path.parent, path.parents[2], path.parents[3], tmp_path):
        assert shown(reading_of(given).cases) == [("gpt-4o-mini", "drift")]


def test_two_pipelines_called_local_give_two_rows_however_little_they_share(tmp_path: Path) -> None:
    foreign(tmp_path / "secalign", "local", pipeline_name="local", suite_name="slack")
    foreign(tmp_path / "llama", "local", pipeline_name="local", suite_name="banking")
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("local [llama]", "none"), ("local [secalign]", "none")]
    assert found.repeated_count == 0
    assert found.resolution_notes[0].startswith(
        "Several pipelines are called local; they are kept apart (or say what"
    )
    assert f"[llama] {tmp_path}/llama; [secalign] {tmp_path}/secalign" in found.resolution_notes[0]


def test_one_pipeline_called_local_is_local(tmp_path: Path) -> None:
    foreign(tmp_path, "local", pipeline_name="local")
    foreign(tmp_path, "local-tool_filter", pipeline_name="local-tool_filter")
    assert shown(reading_of(tmp_path).cases) == [("local", "none"), ("local", "tool_filter")]


def test_one_case_with_two_outcomes_is_of_two_pipelines_and_a_copy_is_of_one(tmp_path: Path) -> None:
    first = foreign(tmp_path / "a", "m", pipeline_name="m")
    copy = foreign(tmp_path / "b", "m", pipeline_name="m")
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("m", "none")]
    assert [(file.source, file.counted_source) for file in found.repeated_files] == [(str(copy), str(first))]
    foreign(tmp_path / "b", "m", pipeline_name="m", utility=False)
    foreign(tmp_path / "b", "m", pipeline_name="m", suite_name="banking")
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("m [a]", "none"), ("m [b]", "none"), ("m [b]", "none")]
    assert found.repeated_files == ()


def test_two_folders_of_one_log_that_spell_one_name_are_told_apart_by_the_folder(tmp_path: Path) -> None:
    foreign(tmp_path, "m-camel", pipeline_name="m")
    foreign(tmp_path, "m+camel", pipeline_name="m", utility=False)
    assert shown(reading_of(tmp_path).cases) == [("m [m+camel]", "camel"), ("m [m-camel]", "camel")]


def test_runs_of_ours_and_published_ones_of_the_same_name_are_never_one_row(tmp_path: Path) -> None:
    foreign(tmp_path / "theirs", "m", pipeline_name="m", benchmark_version="v1.2.2")
    store_own(tmp_path / "ours", case_of(model="m", defense="none", suite="banking"))
    assert shown(reading_of(tmp_path).cases) == [("m [ours]", "none"), ("m [theirs]", "none")]


def test_one_case_of_ours_under_two_settings_is_kept_apart_with_the_defenses_of_its_run(
    tmp_path: Path,
) -> None:
    for home, settings in (("old", "1"), ("new", "2")):
        store_own(tmp_path / home, case_of(defense="mine"), config_hash=settings)
        store_own(tmp_path / home, case_of(defense="none"), config_hash="0")
    found = reading_of(tmp_path)
    assert shown(found.cases) == [
        ("gpt-4o [new]", "mine"),
        ("gpt-4o [new]", "none"),
        ("gpt-4o [old]", "mine"),
        ("gpt-4o [old]", "none"),
    ]


def test_workspaces_later_injection_tasks_prove_the_version_of_the_whole_pipeline(tmp_path: Path) -> None:
    task = {"suite_name": "workspace", "injection_task_id": "injection_task_6"}
    foreign(tmp_path, "m", pipeline_name="m", **task)
    foreign(tmp_path, "m", pipeline_name="m", suite_name="banking")
    foreign(tmp_path, "n", pipeline_name="n", suite_name="banking")
    found = reading_of(tmp_path)
    assert {(case.model, case.version) for case in found.cases} == {
        ("m", "v1.2 or later"),
        ("n", "unrecorded"),
    }
    assert "v1.2 or later, as it has Workspace's injection tasks 6 to 13" in found.resolution_notes[0]


def test_a_recorded_version_is_never_replaced(tmp_path: Path) -> None:
    task = {"suite_name": "workspace", "injection_task_id": "injection_task_6"}
    foreign(tmp_path, "m", pipeline_name="m", benchmark_version="v1.2.1", **task)
    (tmp_path / NAMES_FILE).write_text("m: {version: v1}")
    assert [case.version for case in reading_of(tmp_path).cases] == ["v1.2.1"]


def test_a_file_of_names_says_what_folders_cannot(tmp_path: Path) -> None:
    for home in ("secalign", "llama"):
        foreign(tmp_path / home, "local", pipeline_name="local")
    foreign(tmp_path, "run-7", pipeline_name="whatever")
    names = tmp_path / "names.yaml"
    names.write_text(
        "secalign/local: {model: Meta-SecAlign-70B}\n'*llama/local': {model: Llama-3.3-70B}\n"
        "run-*: {defense: progent, version: v1.2.2}\nnowhere: {model: x}\n"
        "run-7: {model: gpt-4o, defense: drift}\n"
    )
    found = reading_of(tmp_path, names=names)
    assert [(case.model, case.defense, case.version) for case in found.cases] == [
        ("Llama-3.3-70B", "none", "unrecorded"),
        ("gpt-4o", "progent", "v1.2.2"),
        ("Meta-SecAlign-70B", "none", "unrecorded"),
    ]
    assert found.resolution_notes[-1] == f"{names}: 'nowhere' matches no folder of other people's runs here."


def test_spellings_that_the_user_maps_to_one_name_are_one_pipeline(tmp_path: Path) -> None:
    foreign(tmp_path, "gpt-4o-a", pipeline_name="gpt-4o-a")
    foreign(tmp_path, "gpt-4o-b", pipeline_name="gpt-4o-b", utility=False)
    (tmp_path / NAMES_FILE).write_text("'gpt-4o-?': {model: gpt-4o}")
    found = reading_of(tmp_path)
    assert (shown(found.cases), found.repeated_count) == ([("gpt-4o", "none")], 1)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "- a",
        "m: gpt",
        "m: {modell: x}",
        "m: {model: 5}",
        "m: {model: ''}",
        "m: [",
        "\x00",
        "!!python/x {}",
        "5: {}",
    ],
)
def test_a_file_of_names_in_another_form_is_one_line(tmp_path: Path, content: str) -> None:
    foreign(tmp_path, "m", pipeline_name="m")
    names = tmp_path / "names.yaml"
    names.write_text(content)
    with pytest.raises(ConfigError) as caught:
        read_cases([tmp_path], RunNames(names))
    assert str(names) in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="no such file"):
        RunNames(tmp_path / "missing.yaml")


def spans(*model_ids: str) -> list[dict[str, Any]]:
    return [span(0, None, "run", calls=[model_call("agent", 1, 1, model_id=one) for one in model_ids])]


@pytest.mark.parametrize(
    "broken",
    [
        [{"kind": "worker", "messages": 5}], [{"calls": [1]}], [5], [{"decision": "x"}],
        [{"calls": {"model_id": 5}}],
    ],
)  # fmt: skip
def test_a_malformed_span_is_a_skipped_file(tmp_path: Path, broken: list[Any]) -> None:
    store_own(tmp_path, case_of(suite="slack"))
    path = store_own(tmp_path, case_of())
    stored = json.loads(path.read_text())
    stored["agentsys"]["spans"] = broken
    path.write_text(json.dumps(stored))
    found = reading_of(tmp_path)
    assert (len(found.cases), [skip.path for skip in found.skipped_files]) == (1, [str(path)])
    assert ResultFrame(found).rows


SERVED_CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": "f", "args": {}, "id": "agentsys_1"}],
}


def test_a_clients_files_are_of_the_agent_that_was_served_and_not_of_the_model_it_asked_for(
    tmp_path: Path,
) -> None:
    foreign(tmp_path, "gpt-4o-2024-05-13", messages=[SERVED_CALL])
    foreign(tmp_path, "gpt-4o-2024-05-13", injection_task_id="injection_task_2")  # without a call
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("unrecorded", "unrecorded")] * 2
    assert SERVED_FILE in found.resolution_notes[0]

    told = {"model": "simulated", "defense": "agentsys", "simulated": True, "asked": ["gpt-4o-2024-05-13"]}
    (tmp_path / SERVED_FILE).write_text(json.dumps(told))
    foreign(tmp_path, "gpt-4o-mini-2024-07-18", pipeline_name="gpt-4o-mini-2024-07-18")  # somebody else's
    found = reading_of(tmp_path)
    assert shown(found.cases) == [("gpt-4o-mini-2024-07-18", "none"), *[("simulated", "agentsys")] * 2]
    (tmp_path / SERVED_FILE).write_text("{")
    assert ("unrecorded", "unrecorded") in shown(reading_of(tmp_path).cases)
