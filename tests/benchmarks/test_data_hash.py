"""The hash follows the data: environment, vectors and included files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.data_hash import hash_suite_data


class Env(TaskEnvironment):
    note: str


def suite_in(folder: Path, note: str, default: str = "d") -> TaskSuite[Any]:
    folder.mkdir()
    (folder / "environment.yaml").write_text("note: !include note.yaml\n")
    (folder / "note.yaml").write_text(f"'{note} {{v}}'\n")
    (folder / "injection_vectors.yaml").write_text(f"v:\n  description: x\n  default: {default}\n")
    return TaskSuite("mini", Env, [], folder)


def test_equal_data_hash_alike_and_a_change_in_an_included_file_shows(tmp_path: Path) -> None:
    first = hash_suite_data(suite_in(tmp_path / "a", "one"))
    assert first == hash_suite_data(suite_in(tmp_path / "b", "one"))
    assert first != hash_suite_data(suite_in(tmp_path / "c", "two"))
    assert first != hash_suite_data(suite_in(tmp_path / "d", "one", "other"))
    assert len(first) == 64


def test_versions_share_their_data_and_suites_do_not() -> None:
    old, new = AgentDojo("v1"), AgentDojo("v1.2.2")
    hashes = {name: hash_suite_data(new.suite(name)) for name in new.suite_names()}
    assert hashes == {name: hash_suite_data(old.suite(name)) for name in old.suite_names()}
    assert len(set(hashes.values())) == 4


def test_a_suite_without_data_files_is_hashed_by_its_environment() -> None:
    class Built(TaskSuite[Any]):
        note = "one"

        def load_and_inject_default_environment(self, injections: dict[str, str]) -> Any:
            return Env(note=self.note)

        def get_injection_vector_defaults(self) -> dict[str, str]:
            return {}

    suite = Built("no such suite", Env, [])
    first = hash_suite_data(suite)
    suite.note = "two"
    assert hash_suite_data(suite) != first
