"""A finished case is reused only where nothing that decides its numbers has changed; it outlives a class that moves."""

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
from needs_guest import needs_guest
from small_runs import Silent, records_in

import agentsys
from agentsys.base import object_import
from agentsys.base.object_import import REGISTERED_NAMES, find_registered_class, load_registered_classes
from agentsys.errors import ConfigError
from agentsys.extensions import list_shipped_config_dirs
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, assistant
from agentsys.runs.run_session import Session, prepare_session
from agentsys.runs.settings import Settings, validate_settings
from agentsys.runs.store import load_recipe
from baselines.none import NoDefense

SMALL = ["benchmark.suites=[slack]", "user_tasks=[0,1]"]

DEFENSE = """
from agentsys.models.pipeline_elements import tool_loop
from my_words import GREETING

class Firewall:
    name = "my_wall"

    def pipeline(self, model, suite):
        return tool_loop(model, GREETING, name=model.name)
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder: a defense of their own in `plug`, its YAML in `conf`."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "plug").mkdir()
    (tmp_path / "plug/my_firewall.py").write_text(DEFENSE)
    (tmp_path / "plug/my_words.py").write_text("GREETING = 'Be good.'\n")
    (tmp_path / "conf/defense").mkdir(parents=True)
    (tmp_path / "conf/model").mkdir()
    (tmp_path / "conf/defense/my_wall.yaml").write_text("_target_: my_firewall.Firewall\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("my_"):
            del sys.modules[name]


def planned(user: Path, *overrides: str, **options: Any) -> Session:
    return prepare_session(
        [*SMALL, f"logdir={user / 'runs'}", *overrides],
        config_dirs=[user / "conf"],
        plugin_paths=[user / "plug"],
        **options,
    )


def refusal(user: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(user, *overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def prompts(user: Path) -> set[str]:
    return {record["messages"][0]["content"][0]["content"] for record in records_in(user / "runs").values()}


def test_an_edited_defense_is_refused_by_its_file_and_run_anew_on_demand(user: Path) -> None:
    planned(user, "defense=my_wall").execute(Silent())
    assert planned(user, "defense=my_wall").plan.open_jobs.blocks == ()
    (user / "plug/my_words.py").write_text("GREETING = 'Be better.'\n")
    assert "code of my_words.py" in refusal(user, "defense=my_wall")

    again = planned(user, "defense=my_wall", again=True)
    assert (len(again.plan.open_jobs), again.plan.finished, again.plan.replaced) == (2, 0, 2)
    assert prompts(user) == {"Be good."}, "planning alone moves nothing"
    again.execute(Silent())
    assert prompts(user) == {"Be better."}
    assert planned(user, "defense=my_wall").plan.open_jobs.blocks == ()


def test_what_is_run_anew_is_kept_aside_and_counts_nowhere(user: Path) -> None:
    from agentsys.records.case_reader import COUNTS_KEY, load_runs, read_cases

    planned(user).execute(Silent())
    before = {path: (user / "runs" / path).read_bytes() for path in records_in(user / "runs")}
    planned(user, again=True).execute(Silent())
    planned(user, again=True).execute(Silent())
    kept = sorted((user / "runs/.agentsys/aside").iterdir())
    assert len(kept) == 2
    assert {path: (kept[0] / path).read_bytes() for path in before} == before
    assert len(read_cases([user / "runs"]).cases) == 2
    assert load_runs(user / "runs").attrs[COUNTS_KEY]["seen"] == 2


def test_run_anew_touches_no_case_outside_the_plan(user: Path) -> None:
    planned(user, "attack=none,direct", "injection_tasks=[1]").execute(Silent())
    stamps = {p: (user / "runs" / p).stat().st_mtime_ns for p in records_in(user / "runs")}
    planned(user, "attack=direct", "injection_tasks=[1]", again=True).execute(Silent())
    changed = {p for p, stamp in stamps.items() if (user / "runs" / p).stat().st_mtime_ns != stamp}
    assert changed == {path for path in stamps if "/direct/" in path}
    assert len(changed) == 2


class Told:
    """A model whose YAML says what happens."""

    def __init__(self, name: str, says: str, base_url: str = "http://a") -> None:
        self.name, self.says = name, says

    def complete(self, request: ChatRequest) -> ChatReply:
        if self.says == "fail":
            raise ModelError(ErrorKind.BAD_REQUEST, "no such parameter")
        return ChatReply(assistant(self.says))


def write_model(user: Path, says: str) -> None:
    fields = [
        f"_target_: {__name__}.Told",
        "name: told",
        "prose_name: Told",
        f"says: {says}",
        "base_url: http://a",
        "roles: {worker: null, main: null}",
    ]
    (user / "conf/model/told.yaml").write_text("\n".join(fields))


def test_another_server_is_refused_and_named_without_its_password(user: Path) -> None:
    write_model(user, "Hello")
    planned(user, "model=told").execute(Silent())
    line = refusal(user, "model=told", "model.base_url='http://me:hunter2@b:81/v1'")
    assert "settings: model.base_url (http://a there, http://b:81/v1 now). Give" in line, "and nothing else"
    planned(user, "model=told", "model.base_url='http://me:hunter2@b:81/v1'", again=True).execute(Silent())
    for path in (user / "runs").rglob("*"):
        assert path.is_dir() or b"hunter2" not in path.read_bytes(), path


def test_seeds_that_would_share_their_records_are_refused_with_the_mend(user: Path) -> None:
    line = refusal(user, "seed=0,1")
    assert "seed (0 in one, 1 in the other)" in line
    assert "epochs=2" in line
    assert not records_in(user / "runs")


def test_other_settings_that_no_name_tells_are_refused_in_one_sweep(user: Path) -> None:
    write_model(user, "Hello")
    line = refusal(user, "model=told", "model.base_url=http://a,http://b")
    assert "model.base_url (http://a in one, http://b in the other)" in line
    assert "epochs" not in line


def test_a_search_begun_under_other_settings_is_refused_too(user: Path) -> None:
    search = ["attack=pair", "injection_tasks=[1]", "attack.streams=1", "attack.depth=2", "user_tasks=[0]"]
    planned(user, *search).execute(Silent())
    for path in records_in(user / "runs"):
        if ".attempts" not in path:
            (user / "runs" / path).unlink()
    assert "seed (0 there, 3 now)" in refusal(user, *search, "seed=3")
    anew = planned(user, *search, "seed=3", again=True)
    anew.execute(Silent())
    assert {record["agentsys"]["seed"] for record in records_in(user / "runs").values()} == {3}
    (kept,) = (user / "runs/.agentsys/aside").iterdir()
    assert any(".attempts" in str(path) for path in kept.rglob("*.json"))


def test_another_version_of_the_package_is_another_configuration(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(user).execute(Silent())
    monkeypatch.setattr(
        "agentsys.runs.settings.read_code_versions", lambda: {"agentsys": "99.0", "agentdojo": "0.1.35"}
    )
    assert f"version of agentsys ({agentsys.__version__} there, 99.0 now)" in refusal(user)


TABLE = tomllib.loads(REGISTERED_NAMES.read_text("utf-8"))

NONE = "baselines.none.NoDefense"
MOVED = "baselines.moved_for_a_test.Nothing"


def targets(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value["_target_"],) if "_target_" in value else ()
        value = [*value.values()]
    if isinstance(value, list):
        for inner in value:
            yield from targets(inner)


@needs_guest("typed")
def test_every_class_of_a_shipped_yaml_has_a_registered_name_of_its_kind() -> None:
    files = [path for folder in list_shipped_config_dirs() for path in folder.rglob("*.yaml")]
    found = {(path.parent.name, one) for path in files for one in targets(yaml.safe_load(path.read_text()))}
    assert len(found) > 40
    for kind, path in found:
        assert find_registered_class(path).name.startswith(f"agentsys:{kind}."), (
            f"{path}: {REGISTERED_NAMES.name}"
        )
        assert find_registered_class(path).today == path, "the path of today comes first"


@needs_guest("typed")
def test_every_registered_path_of_today_imports_and_belongs_to_one_name() -> None:
    known = {one.name: one for one in load_registered_classes().values()}
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
    then = sorted(f"{one.name} {one.in_0_1} {one.first}" for one in set(load_registered_classes().values()))
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
            "defense": {"_target_": "agentsys_plugins.rivals.stack.Stack", "members": inner},
            "attack": {"_target_": "agentsys.attacks.text_attacks.InjectionRound", "base": base},
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
    known = load_registered_classes()
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
def mover(tmp_path: Path) -> Iterator[Path]:
    """A config folder of a user's, whose defense is a class of ours."""
    (tmp_path / "conf/defense").mkdir(parents=True)
    write_defense(tmp_path, NONE)
    yield tmp_path
    renew()


def write_defense(mover: Path, target: str) -> None:
    (mover / "conf/defense/mine.yaml").write_text(f"_target_: {target}\n")


def renew() -> None:
    load_registered_classes.cache_clear()
    object_import._warn_moved.cache_clear()


def plan_mover(mover: Path, *overrides: str, **options: Any) -> Session:
    return prepare_session([*overrides, f"logdir={mover / 'runs'}"], config_dirs=[mover / "conf"], **options)


def move(mover: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a later release have `NoDefense` under another path."""
    module = ModuleType("moved_for_a_test")
    module.Nothing = NoDefense  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MOVED.rpartition(".")[0], module)
    today, *earlier = TABLE["names"]["defense.none"]
    entry = f'"defense.none" = {json.dumps([MOVED, *earlier, today])}'
    table = REGISTERED_NAMES.read_text("utf-8")
    (mover / "table.toml").write_text(re.sub(r'^"defense.none" = .*$', entry, table, flags=re.MULTILINE))
    monkeypatch.setattr(object_import, "REGISTERED_NAMES", mover / "table.toml")
    renew()


def test_a_folder_goes_on_after_a_class_was_moved_and_so_does_its_yaml(
    mover: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plan = [*SMALL, "defense=mine"]
    assert plan_mover(mover, *plan).execute(Silent()).errors == 0
    move(mover, monkeypatch)
    assert plan_mover(mover, *plan).plan.open_jobs.blocks == ()
    plan_mover(mover, *plan)
    (line,) = [record.getMessage() for record in caplog.records if "has moved" in record.getMessage()]
    assert line.startswith(f"_target_: {NONE} has moved") and line.endswith(f"write _target_: {MOVED}")
    write_defense(mover, MOVED)
    caplog.clear()
    assert plan_mover(mover, *plan).plan.open_jobs.blocks == ()
    assert not caplog.records

    with pytest.raises(ConfigError, match=r"other settings: seed \(0 there, 7 now\)\. Give"):
        plan_mover(mover, *plan, "seed=7")
    write_defense(mover, "baselines.reworded_task.Delimiters")
    with pytest.raises(ConfigError, match=r"other settings: defense\._target_\. Give"):
        plan_mover(mover, *plan)


def test_what_was_kept_to_run_cases_again_names_the_classes_of_today(
    mover: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    BundledCell = pytest.importorskip("agentsys_plugins.bundles.bundle_archive").BundledCell
    session = plan_mover(mover, *SMALL, "defense=mine")
    session.execute(Silent())
    kept_as = session.settings[0].config_hash
    move(mover, monkeypatch)
    recipe = load_recipe(mover / "runs", kept_as)
    assert recipe is not None
    assert recipe.settings["defense"]["_target_"] == MOVED
    cell = BundledCell(settings={"defense": {"_target_": NONE}}, identity={"defense": {"_target_": NONE}})
    assert cell.settings["defense"]["_target_"] == MOVED
    assert cell.identity["defense"]["_target_"] == "agentsys:defense.none"
    assert not caplog.records
