"""Optional abilities are asked for by type, and a name that is nearly one is refused at start."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys import abilities
from agentsys.base.config_catalog import list_config_names, load_config
from agentsys.errors import ConfigError, Unavailable
from agentsys.runs.instantiate import _ABILITIES, check_abilities, instantiate
from agentsys.runs.run_session import prepare_session


def defense(**more: Any) -> object:
    names = {"name": "mine", "pipeline": lambda self, model, suite: None}
    return type("Mine", (), {**names, **more})()


def suite(**more: Any) -> object:
    return type("Mine", (TaskSuite,), more).__new__(type("Mine", (TaskSuite,), more))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("kind", "made", "told"),
    [
        ("defense", defense(rehearse=lambda self: self), r"has `rehearse`; did you mean `rehearsed`\?"),
        ("defense", defense(whole_programme=True), r"has `whole_programme`; did you mean `whole_program`\?"),
        ("defense", defense(simulated_role=dict), r"has `simulated_role`; did you mean `simulated_roles`\?"),
        ("suite", suite(measure=lambda self, case: None), r"has `measure`; did you mean `measured`\?"),
        ("suite", suite(next_turns=1, user_turn=len), r"has `user_turn`; did you mean `user_turns`\?"),
    ],
)
def test_a_name_that_is_nearly_an_ability_is_refused(kind: str, made: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        check_abilities(kind, made, "it")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("defense", defense(rehearsed=lambda self: self, rehearse=lambda self: None)),
        ("defense", defense(_rehearse=lambda self: self, model=1, settings=2)),
        ("suite", suite(measured=lambda self, case: None, tools=[])),
        ("model", defense(rehearse=len)),
    ],
)
def test_other_names_are_nobodys_business(kind: str, made: object) -> None:
    check_abilities(kind, made, "it")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (suite(several_turns=lambda self: False), r"`several_turns` of it has to be a value or a property"),
        (suite(measured={"utility": True}), r"`measured` of it has to be a method"),
    ],
)
def test_an_ability_of_the_wrong_shape_is_refused(made: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_abilities("suite", made, "it")


def test_every_ability_belongs_to_some_kind_of_object() -> None:
    protocols = {found for _, found in inspect.getmembers(abilities, inspect.isclass)}
    own = {found for found in protocols if found.__module__ == abilities.__name__}
    assert own - {ability for some in _ABILITIES.values() for ability in some} == {abilities.UserTurns}


@pytest.mark.parametrize("group", ["defense", "attack", "benchmark"])
def test_nothing_that_is_shipped_is_refused(group: str) -> None:
    for name in list_config_names(group):
        config = {key: value for key, value in load_config(group, name).items() if value != "???"}
        try:
            instantiate(group, config)
        except Unavailable:
            pass  # an extra that is not installed here
        except ConfigError as error:
            assert "did you mean `" not in str(error) and "has to be" not in str(error)


def test_a_suite_from_outside_is_looked_at_before_the_first_case(tmp_path: Path) -> None:
    (tmp_path / "slipped.py").write_text(
        textwrap.dedent(
            """
            from agentsys.benchmarks.agentdojo import AgentDojo

            class Slipped(AgentDojo):
                def suite(self, name):
                    suite = super().suite(name)
                    suite.drive = lambda model, user_task, injection_task: model
                    return suite
            """
        )
    )
    (tmp_path / "configs" / "benchmark").mkdir(parents=True)
    yaml = tmp_path / "configs" / "benchmark" / "slipped.yaml"
    yaml.write_text("# A benchmark for this test\n_target_: slipped.Slipped\nversion: v1.2.2\n")
    chosen = ["benchmark=slipped", "model=simulated", "attack=none", f"logdir={tmp_path / 'runs'}"]
    with pytest.raises(ConfigError, match=r"suite workspace of agentdojo has `drive`; did you mean `driven`"):
        prepare_session(chosen, config_dirs=[tmp_path / "configs"], plugin_paths=[tmp_path])


KEEPER = """
from pathlib import Path
from baselines.none import NoDefense

class Keeper(NoDefense):
    keeps = {"notes_dir": "notes"}

    def __init__(self, name, notes_dir=None, other_dir=None):
        self.name = name
        self.notes_dir, self.other_dir = notes_dir, other_dir
"""


def test_a_defense_from_outside_keeps_files_beside_the_runs_and_no_case_depends_on_where(
    tmp_path: Path,
) -> None:
    (tmp_path / "keeper.py").write_text(KEEPER)
    (tmp_path / "configs" / "defense").mkdir(parents=True)
    yaml = (
        "# A defense for this test\n_target_: keeper.Keeper\nname: keeper\nnotes_dir: null\nother_dir: null\n"
    )
    (tmp_path / "configs" / "defense" / "keeper.yaml").write_text(yaml)

    def planned(*overrides: str) -> Any:
        chosen = ["defense=keeper", "model=simulated", "limit_per_suite=1", "benchmark.suites=[slack]"]
        session = prepare_session(
            [*chosen, *overrides, f"logdir={tmp_path / 'runs'}"],
            config_dirs=[tmp_path / "configs"],
            plugin_paths=[tmp_path],
        )
        return session.plan.jobs[0].cell

    by_default, elsewhere = planned(), planned("defense.notes_dir=/somewhere")
    assert by_default.defense.notes_dir == str(tmp_path / "runs" / ".agentsys" / "notes")
    assert (by_default.defense.other_dir, elsewhere.defense.notes_dir) == (None, "/somewhere")
    assert by_default.settings.config_hash == elsewhere.settings.config_hash
    assert elsewhere.settings.labels["defense"] == "keeper"
    other = planned("defense.other_dir=/somewhere")
    assert other.settings.config_hash != by_default.settings.config_hash
    assert other.settings.labels["defense"] == "keeper+other_dir=/somewhere"
