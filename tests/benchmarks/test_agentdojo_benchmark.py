"""The benchmark adapter: versions, suites, forks, and a package that stays as it was."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite import load_suites
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.benchmarks.agentdojo import AgentDojo, hash_suite_data
from agentsys.errors import ConfigError


def test_exact_injection_is_part_of_the_name() -> None:
    assert AgentDojo("v1").name == "agentdojo"
    assert AgentDojo("v1", injection="exact").name == "agentdojo+exact"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": "v1.2.9"}, "Unknown version of agentdojo 'v1.2.9'. Did you mean v1.2"),
        (
            {"version": "v1", "suites": ["bankng"]},
            "Unknown suite of agentdojo v1 'bankng'. Did you mean banking?",
        ),
        ({"version": "v1", "injection": "exakt"}, "Unknown benchmark.injection 'exakt'. Did you mean exact?"),
        ({"version": "v1", "modules": ["no_such_fork.suites"]}, "there is no module 'no_such_fork'"),
    ],
)
def test_a_mistaken_name_is_one_line_with_the_mend(arguments: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]*$") as raised:
        AgentDojo(**arguments)
    assert message in str(raised.value)


def test_an_unknown_suite_asked_for_later_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="Unknown suite"):
        AgentDojo("v1").suite("workspce")


def test_a_suite_is_built_once_and_the_packages_own_is_left_alone() -> None:
    benchmark, original = AgentDojo("v1.2.2"), load_suites.get_suite("v1.2.2", "slack")
    before = dict(vars(original))
    suite = benchmark.suite("slack")
    assert suite is benchmark.suite("slack")
    assert suite is not original
    assert vars(original) == before
    assert "load_and_inject_default_environment" not in vars(TaskSuite("x", original.environment_type, []))


def test_a_forks_suite_and_version_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "environment.yaml").write_text("note: 'Hello {place}'\n")
    (data / "injection_vectors.yaml").write_text("place:\n  description: d\n  default: there\n")
    (tmp_path / "forked_suites.py").write_text(
        "from pathlib import Path\n"
        "from agentdojo.functions_runtime import TaskEnvironment\n"
        "from agentdojo.task_suite.load_suites import register_suite\n"
        "from agentdojo.task_suite.task_suite import TaskSuite\n"
        "class Env(TaskEnvironment):\n    note: str\n"
        "register_suite(TaskSuite('mini', Env, [], Path(__file__).parent / 'data'), 'fork-1')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        suite = AgentDojo("fork-1", modules=["forked_suites"]).suite("mini")
        assert suite.load_and_inject_default_environment({"place": "you"}).note == "Hello you"
        assert suite.load_and_inject_default_environment({}).note == "Hello there"
    finally:
        load_suites._SUITES.pop("fork-1", None)
        sys.modules.pop("forked_suites", None)


def test_a_module_with_a_bug_is_its_file_line_and_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "buggy_fork.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"buggy_fork\.py, line 1: ModuleNotFoundError: .*surely_not_installed"
    ):
        AgentDojo("v1", modules=["buggy_fork"])


def test_a_suite_can_still_check_itself_and_make_a_new_version() -> None:
    suite = AgentDojo("v1.2.2").suite("banking")
    assert suite.check(check_injectable=False)[0]
    newer = suite.get_new_version((9, 9, 9))
    assert newer.load_and_inject_default_environment({}) == suite.load_and_inject_default_environment({})


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
