"""What looks like a stored file and would be waited for, or read, for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stored_cases import case_of, store_own

from agentsys.records.case_reader import read_cases


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_pipes_and_devices_are_named_and_never_opened(tmp_path: Path) -> None:
    store_own(tmp_path, case_of())
    os.mkfifo(tmp_path / "pipe.json")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zeros.json").symlink_to("/dev/zero")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "gone")
    (tmp_path / "circle.json").symlink_to("circle.json")
    found = read_cases([tmp_path])
    assert len(found.cases) == 1
    why = {Path(one.path).name: one.reason for one in found.skipped_files}
    assert {name for name, reason in why.items() if "device" in reason} == {
        "pipe.json",
        "pipe.csv",
        "zeros.json",
    }
    assert why["nowhere.json"].startswith("cannot be read")
    assert why["circle.json"].startswith("cannot be read")
