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


def test_pipeline_folder_given_itself_is_found(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "slack" / "user_task_0" / "none" / "none.json")
    assert find_pipeline_folders(tmp_path / "a") == [tmp_path / "a"]
    assert find_pipeline_folders(tmp_path / "a" / "slack") == []


def test_thinking_blocks_and_call_ids_are_kept(tmp_path: Path) -> None:
    thought = {"type": "thinking", "content": "hm", "id": "t1"}
    call = {"function": "f", "args": {"x": {"y": [1, 2.5, None]}}, "id": None, "placeholder_args": None}
    message = {"role": "assistant", "content": [thought], "tool_calls": [call]}
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"messages": [message], "utility": True, "agentsys": {"any": "thing"}}))
    read = read_run(path).messages[0]
    assert read["role"] == "assistant"
    assert read["content"] == [thought]
    assert read["tool_calls"] is not None
    assert read["tool_calls"][0].model_dump() == call


def test_block_without_text_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": [{"type": "image"}]}]}))
    with pytest.raises(UnreadableRun, match="block"):
        read_run(path)
