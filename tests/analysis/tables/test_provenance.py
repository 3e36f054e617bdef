"""What tables say of whose numbers they show; and names that are too long for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_output import command_output
from stored_cases import case_of, row, store_own, store_published

from agentsys.analysis.metrics.comparison import compare_sides
from agentsys.analysis.paper.paper_document import write_paper_notes
from agentsys.analysis.paper.paper_tables import TABLES, fill_table
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.case_notes import write_provenance_notes
from agentsys.analysis.tables.comparison_document import compare_output
from agentsys.analysis.tables.cost_documents import make_cost_output
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.models.chat import ChatAssistantMessage, ChatRequest, assistant, user
from agentsys.models.reply_checks import CONNECTION_QUESTION
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import MAX_NAME_CHARS, CaseRow, shorten_name, shorten_names
from agentsys.simulated.playbook_index import Playbook
from agentsys.simulated.simulated_model import NO_PART_NOTE, SimulatedModel
from agentsys.simulated.simulated_role import SimulatedKnowledge


def yes(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Plays a role."""
    return assistant("Yes.")


ASKED = {"model_ids": {"gpt-4o-2024-11-20": "gpt-4o-2024-05-13"}}


def test_cells_answered_by_another_model_than_was_asked_for_are_named() -> None:
    cases = [row(**ASKED), row(defense="none", **ASKED), row(defense="drift")]
    (note,) = write_provenance_notes(cases)
    assert note == (
        "Asked for gpt-4o-2024-05-13, answered by gpt-4o-2024-11-20: gpt-4o / agentsys, gpt-4o / none."
    )


def test_a_gateways_prefix_is_no_other_model_and_what_was_not_recorded_is_not_guessed() -> None:
    ids = {"openai/gpt-4o": "gpt-4o", "replayed": "", "Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct"}
    assert write_provenance_notes([row(model_ids=ids)]) == []


def test_runs_on_different_data_are_not_the_same_test() -> None:
    cases = [
        row(data_hash="a" * 64),
        row(defense="none", data_hash="b" * 64),
        row(suite="slack", data_hash="c"),
    ]
    (note,) = write_provenance_notes(cases)
    assert note == (
        "agentdojo v1.2.2 banking: these runs had different data, so they are not the same test"
        " (hash aaaaaaaa: gpt-4o / agentsys; hash bbbbbbbb: gpt-4o / none)."
    )
    assert write_provenance_notes([row(data_hash="a"), row(version="v1", data_hash="b")]) == []


def test_a_role_that_the_simulated_model_cannot_play_is_named() -> None:
    unplayed = f"role 'judge' {NO_PART_NOTE}"
    (note,) = write_provenance_notes([row(notes=(unplayed,)), row(notes=("other",)), row(defense="none")])
    assert note.startswith(
        "Role 'judge' has no simulated part (`simulated_roles`), so the plain agent answered"
    )
    assert note.endswith(": gpt-4o / agentsys.")


def test_the_simulated_model_says_so_itself_and_only_of_such_roles() -> None:
    model = SimulatedModel("simulated").with_playbook(lambda: Playbook((), ()), {"worker": yes})
    asked = [
        ChatRequest([user("Is this right?")], role=role) for role in ("judge", "worker", "main", "agent")
    ]
    told = [model.complete(request).notes for request in asked]
    assert told == [(f"role 'judge' {NO_PART_NOTE}",), (), (), ()]
    assert model.complete(CONNECTION_QUESTION).notes == ()


def test_published_runs_of_a_defense_with_other_prompts_are_named() -> None:
    (note,) = write_provenance_notes(
        [row(foreign=True, defense="drift"), row(foreign=True, defense="none"), row()]
    )
    assert note.startswith("Published runs of gpt-4o / drift were made by other code with prompts of its own")


def test_every_table_has_these_notes() -> None:
    cases = (row(data_hash="a"), row(defense="none", data_hash="b"))
    table = fill_table(TABLES[6], cases)
    for found in (
        tuple(write_report_notes(ResultFrame(LoadedCases(cases)))),
        compare_output(compare_sides(cases), 0).document.notes,
        write_paper_notes(table, LoadedCases(cases), ErrorRule.REPORT),
    ):
        assert any("these runs had different data" in note for note in found)


def test_long_names_are_cut_and_never_become_one() -> None:
    names = {shorten_name("x" * 5000), shorten_name("x" * 4999 + "y"), shorten_name("x" * MAX_NAME_CHARS)}
    assert {len(name) for name in names} == {MAX_NAME_CHARS}
    assert len(names) == 3
    assert shorten_name("gpt-4o") == "gpt-4o"
    assert shorten_name("\ud800" * 99)
    plain = row()
    assert shorten_names([plain, row(model="m" * 99)])[0] is plain


def test_tables_of_a_name_of_5000_characters_are_small_and_other_programs_get_it_whole(
    tmp_path: Path,
) -> None:
    long = "n" * 4999
    for last in "ab":
        path = store_published(tmp_path, pipeline_name="m", suite_name=f"s{last}")
        path.write_text(path.read_text().replace('"direct"', f'"{long}{last}"'))
    for form in ("table", "markdown", "latex", "html"):
        shown = command_output("results", tmp_path, "--format", form)
        assert len(shown) < 60_000
        assert shorten_name(long + "a")[-8:] in shown.replace("\n", "")
    whole = command_output("results", tmp_path, "--format", "csv")
    assert long + "a" in whole and long + "b" in whole


def test_a_report_of_other_peoples_runs_is_written_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    store_published(theirs)
    store_own(tmp_path / "ours", case_of())
    here.mkdir()
    monkeypatch.chdir(here)
    before = sorted(theirs.rglob("*"))
    for folder in ("theirs", "ours"):
        command_output("report", tmp_path / folder, "--no-figures")
    assert sorted(theirs.rglob("*")) == before
    assert (here / "report.html").is_file()
    assert (tmp_path / "ours" / "report.html").is_file()


def test_several_providers_or_fingerprints_within_a_cell_are_one_note_each() -> None:
    def served(*names: str, **more: str) -> CaseRow:
        return row(servers=names, **more)

    cases = [
        served("provider A", "system_fingerprint fp_1", user_task_id="user_task_0"),
        served("provider B", "system_fingerprint fp_1", user_task_id="user_task_1"),
        served("provider C", defense="melon"),  # a cell with one provider of its own
        row(defense="camel"),
    ]
    (note,) = write_provenance_notes(cases)
    assert note.startswith("Replies name 2 values of provider (A, B), so they may come of several models: ")
    changed = [served("system_fingerprint fp_1", "system_fingerprint fp_2")]
    (note,) = write_provenance_notes(changed)
    assert "2 values of system_fingerprint (fp_1, fp_2)" in note


def test_seconds_without_the_models_time_are_named_in_the_table_of_costs() -> None:
    kept = row(cached_replies=3, replies_by_role={"agent": 4}, duration_s=0.1)
    others = row(defense="melon", cached_replies=0, replies_by_role={"agent": 4}, duration_s=9.0)
    notes = [
        note for note in make_cost_output([kept, others]).document.notes if note.startswith("Seconds of")
    ]
    (note,) = notes
    assert "3 of 4 replies, which came from the cache" in note and "melon" not in note
