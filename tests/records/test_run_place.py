"""The place of a stored case, by the folders of its file."""

from __future__ import annotations

import os

from hypothesis import example, given
from hypothesis import strategies as st

from agentsys.records.resolve_runs import RunFolders, find_run_folders

COMPONENTS = st.sampled_from(["", ".", "..", "runs", "gpt-4o", "slack", "user_task_1", "attack"])


@example(["..", "slack", "user_task_1", "attack"], "/")
@example(["..", "slack", "user_task_1", "runs", "..", "attack"], "/")
@given(st.lists(COMPONENTS, max_size=8), st.sampled_from(["", "/", "//", "///"]))
def test_the_folders_are_those_of_the_absolute_path_however_it_is_written(
    parts: list[str], start: str
) -> None:
    folder = start + "/".join(["runs", *parts])
    whole = os.path.abspath(folder)  # noqa: PTH100  links not followed
    above = whole.split("/")
    if len(above) > 4 and above[-3:-1] == ["slack", "user_task_1"]:
        pipeline = "/".join(above[:-3])
        expected = RunFolders(pipeline.rpartition("/")[0] or "/", pipeline, is_pipeline=True)
    else:
        expected = RunFolders(whole, whole, is_pipeline=False)
    assert find_run_folders(folder, "slack", "user_task_1") == expected
