"""The case's key: stable, unique, one safe path."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentsys.records.case import Case, make_safe_name
from agentsys.records.case_row import is_simulated_name, mark_simulated_name, strip_simulated_mark
from agentsys.records.resolve_runs import RunFolders, find_run_folders


def a_case(**changes: object) -> Case:
    values: dict[str, object] = {
        "benchmark": "agentdojo",
        "version": "v1.2.2",
        "suite": "banking",
        "user_task_id": "user_task_0",
        "injection_task_id": "injection_task_1",
        "attack": "direct",
        "model": "simulated",
        "defense": "none",
    }
    return Case.model_validate({**values, **changes})


def test_key_is_the_path_agentdojo_would_use() -> None:
    assert a_case().key == (
        "simulated__none__agentdojo-v1.2.2/banking/user_task_0/direct/injection_task_1.json"
    )
    benign = a_case(injection_task_id=None, attack="none")
    assert benign.key.endswith("user_task_0/none/none.json")


def test_epochs_have_folders_of_their_own() -> None:
    assert a_case().pipeline == "simulated__none__agentdojo-v1.2.2"
    assert a_case(epoch=1).pipeline == "simulated__none__agentdojo-v1.2.2__epoch1"


def test_attempts_lie_in_a_folder_beside_their_case() -> None:
    folder = "simulated__none__agentdojo-v1.2.2/banking/user_task_0/direct/injection_task_1.attempts"
    assert a_case().make_attempt_key(7) == f"{folder}/0007.json"


@given(st.text(min_size=1))
def test_any_name_becomes_one_safe_path_component(name: str) -> None:
    safe = make_safe_name(name)
    assert PurePosixPath(safe).parts == (safe,)
    assert safe not in {".", ".."}
    assert safe.isascii()


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_key_never_leaves_the_log_folder(model: str, attack: str) -> None:
    parts = PurePosixPath(a_case(model=model, attack=attack).key).parts
    assert len(parts) == 5
    assert ".." not in parts


_FITTED = "simulated, fitted to gpt-4o-mini (629 cases, 55648d15)"
"""As earlier versions called an agent that drew from published runs; records of it may be stored."""


@pytest.mark.parametrize("name", ["simulated", "simulated+susceptibility=0.5", "simulated [runs/b]", _FITTED])
def test_a_name_that_says_so_itself_is_not_marked_again(name: str) -> None:
    assert mark_simulated_name(name, simulated=True) == name
    assert is_simulated_name(name)


@pytest.mark.parametrize("name", ["gpt-4o", "simulated", "simulated-anneal", "simulated+x=1"])
def test_a_real_model_is_never_shown_as_a_simulated_one(name: str) -> None:
    assert not is_simulated_name(mark_simulated_name(name, simulated=False))
    assert strip_simulated_mark(mark_simulated_name(name, simulated=False)) == name


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
