"""The store: atomic files, corrupt ones count as not run and are kept, a bad folder is one clear line."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from agentsys.records.case import Case
from agentsys.records.schema import CaseRecord
from agentsys.runs.store import Store, StoreError

CASE = Case(
    benchmark="agentdojo",
    version="v1.2.2",
    suite="banking",
    user_task_id="user_task_0",
    injection_task_id=None,
    attack="none",
    model="simulated",
    defense="none",
)
RECORD = CaseRecord(case=CASE, status="ok", simulated=True, utility=True, security=False, config_hash="abc")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"agentsys": 3}', b"\xff\xfe", b'{"utility": true}'])
def test_a_file_that_does_not_parse_counts_as_not_run_and_is_kept_aside(
    tmp_path: Path, content: bytes
) -> None:
    store = Store(tmp_path)
    path = tmp_path / CASE.key
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert store.case_status(CASE).status == "corrupt"
    store.write(RECORD, {})
    assert store.case_status(CASE).status == "ok"
    assert path.with_suffix(".json.corrupt").read_bytes() == content


def test_a_full_disk_leaves_the_old_record_and_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    path = store.write(RECORD, {"n": 1})
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("agentsys.base.atomic_file.os.fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Finished cases are safe; make room"):
        store.write(RECORD, {"n": 2})
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_log_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(StoreError, match=r"Cannot write to .*logdir=\.\.\."):
        Store(blocked / "runs")


def test_a_temporary_file_left_by_a_kill_is_no_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.write(RECORD, {})
    path.with_name(f".{path.name}.1-2.tmp").write_bytes(b"{")
    assert [p.name for p in path.parent.glob("*.json")] == [path.name]
