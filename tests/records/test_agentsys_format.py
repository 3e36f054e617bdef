"""Our own block as every reader of it sees it, and DRIFT's own files, which become rows with its scores."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, model_call, span, store_own

from agentsys.analysis.metrics.rates import measure
from agentsys.records.agentsys_format import is_simulated_block, parse_stored_block
from agentsys.records.case import STANDS_TWICE, UnreadableRecord
from agentsys.records.case_reader import read_cases
from agentsys.records.schema import SCHEMA_VERSION, CaseRecord, Exposure, RoleUsage, StoredCall, StoredSpan

CALL = StoredCall(**model_call("main", 1, 2, model_id="gpt-4o"))
SPAN = StoredSpan(**span(1, None, "main", calls=[CALL]))


def stored(folder: Path, **record: Any) -> dict[str, Any]:
    """The JSON of a record that our runner wrote."""
    content: dict[str, Any] = json.loads(store_own(folder, case_of(), **record).read_text())
    return content


def test_whatever_the_writer_keeps_the_reader_finds(tmp_path: Path) -> None:
    usage = {"main": RoleUsage(calls=1, prompt=1, completion=2)}
    kept = {
        "usage": usage,
        "spans": [SPAN],
        "written": {"v": "text"},
        "notes": ("n",),
        "noop": True,
        "receipts": (),
    }
    written = CaseRecord(case=case_of(), status="ok", simulated=False, utility=True, security=False, **kept)  # type: ignore[arg-type]
    block = parse_stored_block(stored(tmp_path, **kept))
    assert block.model_dump(mode="json") == written.model_dump(mode="json")


@pytest.mark.parametrize("field", ["traceback", "noop", "injection_mode", "a_later_versions"])
def test_fields_that_only_people_look_at_make_no_file_unreadable(tmp_path: Path, field: str) -> None:
    content = stored(tmp_path)
    content["agentsys"][field] = {"of": "any form"}
    assert parse_stored_block(content).case == case_of()


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("status", "fine", "agentsys.status"),
        ("schema_version", SCHEMA_VERSION + 1, "newer agentsys"),
        ("spans", ["x"], "spans.0: no object"),
        ("spans", [{"messages": {}}], "spans.0.messages: no list"),
        ("spans", [{"calls": ["x"]}], "spans.0.calls: not all are objects"),
    ],
)
def test_every_reader_refuses_the_same_faults(tmp_path: Path, field: str, value: object, fault: str) -> None:
    content = stored(tmp_path)
    content["agentsys"][field] = value
    with pytest.raises(UnreadableRecord, match=fault):
        parse_stored_block(content)


_TWICE = {
    "suite_name": "slack",
    "pipeline_name": "another",
    "user_task_id": "user_task_9",
    "injection_task_id": "injection_task_9",
    "attack_type": "another",
    "benchmark_version": "v1",
    "utility": False,
    "security": True,
    "injections": {"v": "another text"},
}


@pytest.mark.parametrize("field", _TWICE)
@pytest.mark.parametrize("attack", ["important_instructions", "none"])
def test_a_field_that_stands_twice_is_compared_where_it_means_something(
    tmp_path: Path, field: str, attack: str
) -> None:
    path = store_own(tmp_path, case_of(attack=attack))
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: _TWICE[field]}))
    (found,) = read_cases([tmp_path]).cases
    means_nothing = attack == "none" and field in ("security", "attack_type")
    assert (f"{STANDS_TWICE}{field}" in found.notes) is not means_nothing
    assert (found.suite, found.utility, found.injection_success or False) == (case_of().suite, True, False)


@pytest.mark.parametrize(("raw", "shown"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("attack", ["important_instructions", "none"])
def test_what_a_tool_returned_and_what_the_model_was_shown_are_two_columns(
    tmp_path: Path, raw: bool, shown: bool, attack: str
) -> None:
    exposure = Exposure(exposed_raw=raw, exposed_shown=shown, raw_round=2, shown_round=3 if shown else None)
    store_own(tmp_path, case_of(attack=attack), exposure=exposure)
    (found,) = read_cases([tmp_path]).cases
    assert (found.exposed_raw, found.exposed_shown) == ((None, None) if attack == "none" else (raw, shown))
    assert (found.raw_round, found.shown_round) == (2, 3 if shown else None)


def test_a_file_without_our_block_has_none() -> None:
    with pytest.raises(UnreadableRecord):
        parse_stored_block({"suite_name": "banking"})


def test_a_case_is_simulated_by_its_settings_or_by_what_a_reply_says(tmp_path: Path) -> None:
    assert not is_simulated_block(parse_stored_block(stored(tmp_path, spans=[SPAN])))
    assert is_simulated_block(parse_stored_block(stored(tmp_path, simulated=True)))
    served = SPAN.model_copy(update={"calls": [CALL.model_copy(update={"model_id": "proxy/simulated"})]})
    assert is_simulated_block(parse_stored_block(stored(tmp_path, spans=[SPAN, served])))
    (row,) = read_cases([tmp_path]).cases
    assert row.simulated


def _store(folder: Path, **fields: Any) -> Path:
    stored = {
        "suite_name": "banking",
        "pipeline_name": "gpt-4o-mini-2024-07-18",
        "user_task_id": "user_task_13",
        "injection_task_id": "injection_task_5",
        "attack_type": "important_instructions",
        "build_constraints": True,
        "injection_isolation": True,
        "dynamic_validation": True,
        "adaptive_attack": False,
        "tool_permission": {"send_money": "Write"},
        "initial_trajectory": ["read_file"],
        "initial_checklist": "None",
        "conversations": [
            {"role": "user", "content": "[CALL ERROR] is what the user asks about"},
            {"role": "assistant", "content": "<function_call>", "tool_calls": []},
            {"role": "user", "content": "{'role': 'user'} [CALL ERROR] send_money"},
            {"role": "assistant", "content": "<final_answer>", "tool_calls": []},
        ],
        "benchmark_version": "v1.2",
        "utility": True,
        "security": True,
        "total_tokens": 11379,
        "duration": 26.5,
    } | fields
    path = folder / "case.json"
    path.write_text(json.dumps({key: value for key, value in stored.items() if value != "absent"}))
    return path


@pytest.mark.parametrize(
    ("suite", "cases", "utility", "asr", "refusals"),
    [("banking", 144, 40.97, 4.86, 67), ("travel", 140, 53.57, 0.0, 79)],
)
def test_published_runs_give_the_recorded_figures(
    published: Callable[[str], Path], suite: str, cases: int, utility: float, asr: float, refusals: int
) -> None:
    reading = read_cases([published(f"drift-gpt-4o-mini-2024-07-18-{suite}")])
    numbers = {row.metric: row for row in measure(reading.cases) if row.suite == suite}
    assert (len(reading.cases), reading.skipped_files, reading.repeated_count) == (cases, (), 0)
    assert round(numbers["utility_under_attack"].value, 2) == utility
    assert round(numbers["targeted_asr"].value, 2) == asr
    assert sum(case.decisions["denied"] for case in reading.cases) == refusals
    assert {(case.model, case.defense, case.version) for case in reading.cases} == {
        ("gpt-4o-mini-2024-07-18", "drift", "v1.2")
    }
    assert {case.notes for case in reading.cases} == {()}


def test_a_file_gives_what_it_records_and_leaves_the_rest_unknown(tmp_path: Path) -> None:
    _store(tmp_path)
    (found,) = read_cases([tmp_path]).cases
    assert (found.utility, found.injection_success, found.foreign, found.simulated) == (
        True,
        True,
        True,
        False,
    )
    assert (found.tokens_by_role, found.prompt_tokens, found.cost_usd) == ({"all": 11379}, None, None)
    assert (found.decisions, found.trajectory_length, found.ground_truth_length) == ({"denied": 1}, 0, 2)
    assert (found.exposed_raw, found.exposed_shown, found.injection_round) == (None, None, None)


@pytest.mark.parametrize(
    ("switched_off", "defense"),
    [
        (["injection_isolation"], "drift_with_build_constraints_dynamic_validation"),
        (["build_constraints", "injection_isolation", "dynamic_validation"], "drift_with_nothing"),
    ],
)
def test_an_ablation_is_not_counted_as_drift(tmp_path: Path, switched_off: list[str], defense: str) -> None:
    _store(tmp_path, **dict.fromkeys(switched_off, False))
    assert read_cases([tmp_path]).cases[0].defense == defense


def test_benign_and_adaptive_runs_are_told_apart(tmp_path: Path) -> None:
    _store(tmp_path, attack_type=None, injection_task_id=None)
    (benign,) = read_cases([tmp_path]).cases
    assert (benign.attack, benign.injection_success) == ("none", None)
    _store(tmp_path, adaptive_attack=True)
    assert read_cases([tmp_path]).cases[0].attack == "important_instructions_adaptive"


@pytest.mark.parametrize("broken", [{"utility": "yes"}, {"conversations": "absent"}])
def test_an_unfinished_file_is_skipped_with_a_reason(tmp_path: Path, broken: dict[str, Any]) -> None:
    store_own(tmp_path, case_of())
    _store(tmp_path, **broken)
    reading = read_cases([tmp_path])
    assert (len(reading.cases), len(reading.skipped_files)) == (1, 1)
    assert reading.skipped_files[0].reason
