"""The case's key: stable, unique, one safe path."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from agentsys.records.case import Case, safe_name


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
    assert a_case().attempt_key(7) == f"{folder}/0007.json"


@given(st.text(min_size=1))
def test_any_name_becomes_one_safe_path_component(name: str) -> None:
    safe = safe_name(name)
    assert PurePosixPath(safe).parts == (safe,)
    assert safe not in {".", ".."}
    assert safe.isascii()


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_key_never_leaves_the_log_folder(model: str, attack: str) -> None:
    parts = PurePosixPath(a_case(model=model, attack=attack).key).parts
    assert len(parts) == 5
    assert ".." not in parts
