"""Compressed records (`store.compress`): whoever reads plain ones reads them, and a damaged one is a damaged one."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
import zstandard
from small_runs import Silent

from agentsys.base import packed_json
from agentsys.base.packed_json import pack_json, read_json_bytes, unpack_json
from agentsys.models.recorded_runs import read_run
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_reader import load_runs, read_cases
from agentsys.records.stored_file import read_case_file
from agentsys.runs.run_session import Session, prepare_session

CHOSEN = ["defense=none", "attack=none,direct", "benchmark.suites=[banking]", "limit_per_suite=3"]


def run(folder: Path, *more: str) -> Session:
    session = prepare_session([*CHOSEN, f"logdir={folder}", *more])
    session.execute(Silent())
    return session


def files_in(folder: Path) -> dict[str, Path]:
    files = (path for path in folder.rglob("*.json") if ".agentsys" not in path.parts)
    return {path.relative_to(folder).as_posix(): path for path in files}


def test_compressed_records_hold_the_same_and_are_read_like_plain_ones(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a" / "runs", tmp_path / "b" / "runs"
    run(plain)
    run(packed, "store.compress=true")
    assert files_in(plain).keys() == files_in(packed).keys()
    for name, path in files_in(packed).items():
        with pytest.raises(ValueError):
            orjson.loads(path.read_bytes())
        assert path.stat().st_size * 3 < files_in(plain)[name].stat().st_size
        assert read_run(path).messages == read_run(files_in(plain)[name]).messages
    first, second = (load_runs(folder).drop(columns=["source", "duration_s"]) for folder in (plain, packed))
    assert second.equals(first) and len(first) == 6


@pytest.mark.parametrize("then", [True, False])
def test_a_run_goes_on_in_either_form(tmp_path: Path, then: bool) -> None:
    run(tmp_path, f"store.compress={str(not then).lower()}", "user_tasks=[0]")
    session = run(tmp_path, f"store.compress={str(then).lower()}")
    assert 0 < session.plan.finished < len(session.plan.jobs)
    again = prepare_session([*CHOSEN, f"logdir={tmp_path}"]).plan
    assert not again.open_jobs and not again.corrupt
    assert len(read_cases([tmp_path]).cases) >= len(again.jobs)


@pytest.mark.parametrize("damage", ["cut", "flipped", "large", "unknown", "longer", "two"])
def test_a_damaged_or_hostile_file_is_skipped(
    tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = pack_json(b'{"a": "' + b"x" * 5000 + b'"}')
    assert unpack_json(content)[:7] == b'{"a": "'
    if damage == "cut":
        content = content[:-3]
    elif damage == "flipped":
        content = content[:4] + bytes([content[4] ^ 0x08]) + content[5:]
    elif damage == "large":
        monkeypatch.setattr(packed_json, "_MOST_BYTES", 4999)
    elif damage in ("longer", "two"):
        content += b"x" if damage == "longer" else pack_json(b'{"a": "y"}')
    else:
        content = zstandard.ZstdCompressor(write_content_size=False).compress(b"{}")
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        read_json_bytes(path)
    with pytest.raises(UnreadableRecord, match="writes it anew"):
        read_case_file(str(path))
