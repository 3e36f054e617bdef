"""Our own block as every reader of it sees it: one definition, checked in one place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, store_own

from agentsys.records.agentsys_format import is_simulated_block, parse_stored_block
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_reader import read_cases
from agentsys.records.schema import CaseRecord, RoleUsage, StoredCall, StoredSpan

CALL = StoredCall(
    role="main",
    prompt=1,
    completion=2,
    cached=0,
    reasoning=0,
    cost_usd=None,
    latency_s=0.1,
    model_id="gpt-4o",
    attempts=1,
    from_cache=False,
)
SPAN = StoredSpan(
    id=1,
    parent_id=None,
    kind="main",
    name=None,
    attempt=0,
    messages=[],
    calls=[CALL],
    decision={},
    duration_s=1.0,
)


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
        ("schema_version", 99, "newer agentsys"),
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


def test_a_field_of_an_earlier_version_is_passed_over_and_told(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(model="simulated, fitted to m (9 cases, 0123abcd)"), simulated=True)
    (path,) = tmp_path.rglob("*.json")
    found = json.loads(path.read_bytes())
    found["agentsys"]["forecast_kind"] = "bound"
    path.write_text(json.dumps(found))
    (row,) = read_cases([tmp_path]).cases
    assert row.table_model == "simulated, fitted to m (9 cases, 0123abcd)"
    assert row.notes[-1] == "unknown fields ignored: forecast_kind"


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
