"""Published and own records are read alike, and pipelines are found without reading every folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentsys.models.recorded_runs import UnreadableRun, find_pipeline_folders, read_run


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")


def test_pipeline_folders_are_found_at_any_depth_and_hidden_ones_left_out(tmp_path: Path) -> None:
    for pipeline in ("a", "deep/er/b"):
        for task in ("user_task_0", "user_task_1"):
            touch(tmp_path / pipeline / "slack" / task / "none" / "none.json")
    touch(tmp_path / ".agentsys" / "cache" / "x" / "y" / "z.json")
    touch(tmp_path / "a" / "slack" / "user_task_0" / "none" / "more" / "x.json")
    touch(tmp_path / "notes.json")
    assert find_pipeline_folders(tmp_path) == [tmp_path / "a", tmp_path / "deep/er/b"]


def test_block_without_text_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": [{"type": "image"}]}]}))
    with pytest.raises(UnreadableRun, match="block"):
        read_run(path)
