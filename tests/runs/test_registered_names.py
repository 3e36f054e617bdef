"""Finished cases outlive a move of our classes: what identities call them are names, which stay."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from small_runs import Silent

from agentsys.base import object_import
from agentsys.base.object_import import REGISTERED_NAMES, registered, registered_classes
from agentsys.bundles.bundle_archive import BundledCell
from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dirs
from agentsys.runs.run_session import Session, prepare_session
from agentsys.runs.settings import Settings, validate_settings
from agentsys.runs.store import load_recipe
from baselines.none import NoDefense

TABLE = tomllib.loads(REGISTERED_NAMES.read_text("utf-8"))
SMALL = ["benchmark.suites=[slack]", "user_tasks=[0,1]"]
NONE = "baselines.none.NoDefense"
MOVED = "baselines.moved_for_a_test.Nothing"


def targets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value["_target_"],) if "_target_" in value else ()
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from targets(inner)


def test_every_class_of_a_shipped_yaml_has_a_registered_name_of_its_kind() -> None:
    files = [path for folder in shipped_config_dirs() for path in folder.rglob("*.yaml")]
    found = {(path.parent.name, one) for path in files for one in targets(yaml.safe_load(path.read_text()))}
    assert len(found) > 40
    for kind, path in found:
        assert registered(path).name.startswith(f"agentsys:{kind}."), f"{path}: {REGISTERED_NAMES.name}"
        assert registered(path).today == path, "the path of today comes first"


def test_every_registered_path_of_today_imports_and_belongs_to_one_name() -> None:
    known = {one.name: one for one in registered_classes().values()}
    assert len(known) == len(TABLE["names"])
    for name, one in known.items():
        assert re.fullmatch(r"agentsys:[a-z]+\.[a-z_]+", name)
        module, _, cls = one.today.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), cls), type), one.today
    older = TABLE["older"]
    paths = Counter(p for n, several in TABLE["names"].items() for p in {*several, older.get(n, several[0])})
    assert set(paths.values()) == {1}
    assert set(TABLE["older"]) <= set(TABLE["names"])


def test_the_paths_of_version_0_1_and_before_are_never_rewritten() -> None:
    then = sorted(f"{one.name} {one.in_0_1} {one.first}" for one in set(registered_classes().values()))
    assert hashlib.sha256("\n".join(then).encode()).hexdigest()[:16] == "6b729a9841561ecc", (
        "a move appends today's path to the entry's line and puts the new one first; nothing else changes"
    )


def settings_of(model: str, defense: str = "my_wall.Wall") -> Settings:
    inner = [{"_target_": "baselines.tool_filter.ToolFilter", "prompt": "x"}, {"_target_": defense}]
    base = {"_target_": "agentsys.attacks.text_attacks.TemplateAttack", "name": "t"}
    return validate_settings(
        {
            "model": {
                **{"_target_": model, "name": "m", "model_id": "m-1", "temperature": 0.0, "timeout_s": 5},
                "base_url": "https://me:pw@host/v1",
            },
            "defense": {"_target_": "baselines.stack.Stack", "members": inner},
            "attack": {"_target_": "agentsys.attacks.injection_round.InjectionRound", "base": base},
            "benchmark": {
                **{"_target_": "agentsys.benchmarks.agentdojo.AgentDojo", "version": "v1.2.2"},
                "suites": None,
            },
            "others": {"w": {"_target_": "agentsys.models.providers.google.GoogleModel", "name": "w"}},
            "labels": {"model": "m", "defense": "d", "attack": "a"},
            "executor": {"workers": 1},
            "logdir": "runs",
            "seed": 3,
        }
    )


def test_two_classes_never_share_an_identity_and_two_paths_of_one_do() -> None:
    known = registered_classes()
    by_path = {path: settings_of(path).config_hash for path in [*known, "my_models.Mine", "model.openai"]}
    assert len(set(by_path.values())) == len({one.name for one in known.values()}) + 2
    assert by_path["agentsys.models.openai.OpenAIModel"] == by_path[known[OPENAI].today]


OPENAI = "agentsys.models.providers.openai.OpenAIModel"


def test_a_users_own_class_stays_its_path_in_the_identity() -> None:
    identity = settings_of(OPENAI).identity
    assert identity["defense"]["members"][1] == {"_target_": "my_wall.Wall"}
    assert identity["model"]["_target_"] == "agentsys:model.openai"
    assert not re.search(r'"(agentsys|baselines)\.', json.dumps(identity))


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Path]:
    """A config folder of a user's, whose defense is a class of ours."""
    (tmp_path / "conf/defense").mkdir(parents=True)
    write_defense(tmp_path, NONE)
    yield tmp_path
    renew()


def write_defense(user: Path, target: str) -> None:
    (user / "conf/defense/mine.yaml").write_text(f"_target_: {target}\n")


def renew() -> None:
    registered_classes.cache_clear()
    object_import._warn_moved.cache_clear()


def planned(user: Path, *overrides: str, **options: Any) -> Session:
    return prepare_session([*overrides, f"logdir={user / 'runs'}"], config_dirs=[user / "conf"], **options)


def move(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a later release have `NoDefense` under another path."""
    module = ModuleType("moved_for_a_test")
    module.Nothing = NoDefense  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MOVED.rpartition(".")[0], module)
    today, *earlier = TABLE["names"]["defense.none"]
    entry = f'"defense.none" = {json.dumps([MOVED, *earlier, today])}'
    table = REGISTERED_NAMES.read_text("utf-8")
    (user / "table.toml").write_text(re.sub(r'^"defense.none" = .*$', entry, table, flags=re.MULTILINE))
    monkeypatch.setattr(object_import, "REGISTERED_NAMES", user / "table.toml")
    renew()


def test_a_folder_goes_on_after_a_class_was_moved_and_so_does_its_yaml(
    user: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = [*SMALL, "defense=mine"]
    assert planned(user, *plan).execute(Silent()).errors == 0
    move(user, monkeypatch)
    assert planned(user, *plan).plan.open_jobs == ()
    planned(user, *plan)
    (line,) = [record.getMessage() for record in caplog.records if "has moved" in record.getMessage()]
    assert line.startswith(f"_target_: {NONE} has moved") and line.endswith(f"write _target_: {MOVED}")
    write_defense(user, MOVED)
    caplog.clear()
    assert planned(user, *plan).plan.open_jobs == ()
    assert not caplog.records

    with pytest.raises(ConfigError, match=r"other settings: seed \(0 there, 7 now\)\. Give"):
        planned(user, *plan, "seed=7")
    write_defense(user, "baselines.reworded_task.Delimiters")
    with pytest.raises(ConfigError, match=r"other settings: defense\._target_\. Give"):
        planned(user, *plan)


def test_what_was_kept_to_run_cases_again_names_the_classes_of_today(
    user: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    session = planned(user, *SMALL, "defense=mine")
    session.execute(Silent())
    kept_as = session.settings[0].config_hash
    move(user, monkeypatch)
    recipe = load_recipe(user / "runs", kept_as)
    assert recipe is not None
    assert recipe.settings["defense"]["_target_"] == MOVED
    cell = BundledCell(settings={"defense": {"_target_": NONE}}, identity={"defense": {"_target_": NONE}})
    assert cell.settings["defense"]["_target_"] == MOVED
    assert cell.identity["defense"]["_target_"] == "agentsys:defense.none"
    assert not caplog.records
