"""A finished case is reused only where nothing that decides its numbers has changed since."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent, records_in

import agentsys
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, assistant
from agentsys.runs.run_session import Session, prepare_session

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
    assert planned(user, "defense=my_wall").plan.open_jobs == ()
    (user / "plug/my_words.py").write_text("GREETING = 'Be better.'\n")
    assert "code of my_words.py" in refusal(user, "defense=my_wall")

    again = planned(user, "defense=my_wall", again=True)
    assert (len(again.plan.open_jobs), again.plan.finished, again.plan.replaced) == (2, 0, 2)
    assert prompts(user) == {"Be good."}, "planning alone moves nothing"
    again.execute(Silent())
    assert prompts(user) == {"Be better."}
    assert planned(user, "defense=my_wall").plan.open_jobs == ()


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
        "agentsys.runs.settings.code_versions", lambda: {"agentsys": "99.0", "agentdojo": "0.1.35"}
    )
    assert f"version of agentsys ({agentsys.__version__} there, 99.0 now)" in refusal(user)
