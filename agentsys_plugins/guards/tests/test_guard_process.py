"""A foreign guard at work: what it may do to its host, and what becomes of a text on which it fails."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from stub_guards import MODULE, TEXT_YAML, build_wheel, installed_stub, write_config

from agentsys.errors import ConfigError, Unavailable
from agentsys.runs.compose import compose
from agentsys_plugins.guards import ROOM, guard_confinement
from agentsys_plugins.guards.guard_confinement import find_confinement
from agentsys_plugins.guards.guard_process import GuardProcess
from agentsys_plugins.guards.guard_spec import GuardSpec, hash_guard, install_guard, read_guard_spec
from agentsys_plugins.guards.guard_worker import HostedGuard, NoVerdict, read_verdict


class Level(Enum):
    """A verdict that is no plain value."""

    HIGH = 3


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[GuardProcess]:
    unconfined = find_confinement() is None
    started = GuardProcess(installed_stub(tmp_path, timeout_s=1.5, unconfined=unconfined))
    yield started
    started.close()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("hang", "hang"),
        ("crash", "crash"),
        ("panic", "raised"),
        ("leave", "raised"),
        ("nonsense", "nonsense"),
    ],
)
def test_a_guard_that_fails_says_how_and_judges_the_next_text(
    process: GuardProcess, text: str, kind: str
) -> None:
    with pytest.raises(NoVerdict) as caught:
        process.ask(text=text)
    assert caught.value.kind == kind
    assert process.failures == {kind: 1}
    assert process.ask(text="please obey").flag
    assert not process.ask(text="a quiet text").flag


def test_what_a_guard_leaves_in_its_folder_is_told_once(process: GuardProcess) -> None:
    for text in ("log", "launch", "crash, then log", "log"):
        with contextlib.suppress(NoVerdict):
            process.ask(text=text)
    process.close()
    assert process.acts == ["left guard.log (4 bytes)"]


def test_a_guards_folder_starts_empty(process: GuardProcess) -> None:
    assert not process.ask(text="look around").flag
    process.ask(text="log")
    assert process.ask(text="look around").flag


def test_of_a_guard_that_leaves_much_the_first_things_are_told(process: GuardProcess) -> None:
    process.ask(text="litter")
    process.close()
    assert len(process.acts) == 40
    assert process.acts[:2] == ["left litter0 (0 bytes)", "left litter1 (0 bytes)"]


def test_a_guard_sees_no_key(process: GuardProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "SECRET")
    assert not process.ask(text="steal").flag


@pytest.mark.parametrize(
    ("text", "kinds"), [("hang", ["hang"] * 5 + ["given_up"] * 2), ("panic", ["raised"] * 7)]
)
def test_a_guard_that_fails_five_times_in_a_row_is_given_up_unless_it_raises(
    tmp_path: Path, text: str, kinds: list[str]
) -> None:
    process = GuardProcess(installed_stub(tmp_path, timeout_s=0.3, unconfined=True))
    found = []
    for _ in kinds:
        with pytest.raises(NoVerdict) as caught:
            process.ask(text=text)
        found.append(caught.value.kind)
    process.close()
    assert found == kinds


def test_where_nothing_shuts_it_in_a_guard_runs_only_where_its_yaml_says_so_and_its_row_does_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_confinement, "explain_refusal", lambda way: "not on this system")
    spec = installed_stub(tmp_path)
    with pytest.raises(Unavailable, match=r"guards doctor.*--unconfined"):
        GuardProcess(spec)
    process = GuardProcess(spec.model_copy(update={"unconfined": True}))
    assert process.ask(text="please obey").flag
    assert process.describe_acts()["confinement"] == "unconfined"
    process.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"flag": None}, "flag or score"),
        ({"call": None}, "needs call"),
        ({"on_flag": "clean"}, "needs clean"),
        ({"on_flag": "shout"}, "on_flag"),
        ({"colour": "red"}, "colour"),
        ({"kind": "http"}, "needs url"),
        ({"package": "stub-guard"}, "package is 'stub-guard'; give name==version"),
        ({"scroe": "."}, "Unknown option 'scroe'. Did you mean score"),
        ({"call": "stub_guard.scan"}, "call is 'stub_guard.scan'; give module:function"),
        ({"give": [["{txt}"]]}, "Unknown place '{txt}'. Did you mean {text}"),
        ({"threshold": float("nan")}, "threshold is nan; it should be a finite number"),
        ({"package": None, "beside": ["numpy==2.0"]}, "beside is installed with a package"),
        ({"flag_is": False}, "flag_is is False; it should be a valid list"),
        ({"kind": "http", "url": "ftp://x"}, "give an address that begins with http:// or https://"),
    ],
)
def test_a_slip_in_a_guards_yaml_is_named_in_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        read_guard_spec("stub", {**TEXT_YAML, **options})
    assert "\n" not in str(caught.value)


class Judge:
    """A guard with a class of its own, which keeps what it is given."""

    def __init__(self, strength: int = 1) -> None:
        self.strength = strength

    def judge(self, *given: Any, **named: Any) -> dict[str, Any]:
        told = {"given": given, "named": named, "deep": SimpleNamespace(all=[{"bad": self.strength > 1}])}
        return {**told, "safe": "no", "risk": 0.7, "level": Level.HIGH, "reasons": ["a"]}


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ({"flag": "deep.all.0.bad"}, (False, None)),
        ({"flag": "deep.all.0.bad", "args": {"strength": 2}}, (True, None)),
        ({"flag": "reasons"}, (True, None)),
        ({"flag": "named"}, (False, None)),
        ({"flag": "safe", "flag_is": ["no"]}, (True, None)),
        ({"flag": "level", "flag_is": ["HIGH"]}, (True, None)),
        ({"score": "risk"}, (True, 0.7)),
        ({"score": "risk", "threshold": 0.8}, (False, 0.7)),
        ({"flag": "given.1", "flag_is": ["mail"], "give": ["{text}", "{tool}"]}, (True, None)),
        ({"flag": "named.t", "flag_is": ["pay"], "named": {"t": "{task}"}}, (True, None)),
        (
            {"flag": "given.0", "flag_is": [2], "give": ["$guard.strength"], "args": {"strength": 2}},
            (True, None),
        ),
    ],
)
def test_a_verdict_stands_where_the_yaml_says(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], verdict: tuple[bool, float | None]
) -> None:
    monkeypatch.setitem(sys.modules, "own_guard", SimpleNamespace(Judge=Judge))  # type: ignore[arg-type]
    spec = read_guard_spec(
        "own", {"package": "own==1", "make": "own_guard:Judge", "method": "judge", **options}
    )
    values = {"text": "hello", "tool": "mail", "task": "pay", "args": {}}
    said = HostedGuard(spec.describe_for_worker()).answer({"do": "check", "values": values})
    assert (said["flag"], said["score"]) == verdict


def test_a_guard_that_is_not_installed_or_not_to_be_had_is_said_in_one_line(tmp_path: Path) -> None:
    spec = read_guard_spec("stub", TEXT_YAML)
    with pytest.raises(Unavailable, match="agentsys guards add"):
        GuardProcess(spec)
    # A source distribution would run its own code here.
    build = tmp_path / "stub-guard-1.0" / "setup.py"
    build.parent.mkdir()
    build.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    shutil.make_archive(str(tmp_path / "sources" / build.parent.name), "gztar", tmp_path, build.parent.name)
    with pytest.raises(ConfigError, match="could not install") as caught:
        install_guard(spec, tmp_path / "sources")
    assert not (tmp_path / "ran").exists()
    assert "\n" not in str(caught.value)
    assert not spec.folder.exists()


def test_where_the_environment_has_no_pip_that_of_its_python_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []
    done = SimpleNamespace(returncode=1, stderr="stopped here")
    monkeypatch.setattr("agentsys_plugins.guards.guard_spec.find_spec", lambda name: None)
    monkeypatch.setattr(
        "agentsys_plugins.guards.guard_spec.subprocess.run", lambda command, **_: run.extend(command) or done
    )
    with pytest.raises(ConfigError, match="stopped here"):
        install_guard(read_guard_spec("stub", TEXT_YAML), tmp_path)
    assert Path(run[0]).parents[1] == Path(sys.base_prefix)
    assert run[1:3] == ["-m", "pip"]


def test_guards_of_the_same_packages_share_an_environment() -> None:
    one, other = (GuardSpec(package="stub-guard==1.0", call=call, flag=".") for call in ("a:b", "c:d"))
    assert one.folder == other.folder
    assert one.folder != other.model_copy(update={"beside": ("numpy==2.0.0",)}).folder


def settings_hash(folder: Path) -> str:
    (one,) = compose(["model=simulated", "defense=mine"], [folder])
    return one.config_hash


@pytest.mark.slow
def test_another_wheel_of_the_same_name_and_a_changed_file_are_another_guard(tmp_path: Path) -> None:
    config = write_config(tmp_path / "config", "mine", TEXT_YAML)
    missing = settings_hash(config)
    spec = installed_stub(tmp_path)
    first, first_files = settings_hash(config), hash_guard(spec)
    assert first != missing
    shutil.rmtree(spec.folder)
    install_guard(spec, build_wheel(tmp_path / "wheels"))
    assert settings_hash(config) == first
    shutil.rmtree(spec.folder)
    install_guard(spec, build_wheel(tmp_path / "other", MODULE.replace("obey", "comply")))
    assert hash_guard(spec) != first_files
    assert settings_hash(config) != first
    module = next(spec.folder.rglob("stub_guard.py"))
    before = settings_hash(config)
    module.write_text(MODULE.replace("obey", "yield"))
    assert settings_hash(config) != before


def test_without_a_declared_version_nothing_of_a_service_is_known_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = GuardSpec(kind="http", url="http://127.0.0.1:1", flag="bad")
    assert hash_guard(spec.model_copy(update={"version": "3"})) == "3"
    assert len(hash_guard(spec)) == 32


@pytest.mark.parametrize(
    ("package", "path", "sense"),
    [("numpy", "float64", (True, 0.75)), ("numpy", "array", (True, 0.75)), (None, "float", (True, 0.75))],
)
def test_a_number_of_numpys_is_a_number(package: str | None, path: str, sense: tuple[bool, float]) -> None:
    made = getattr(pytest.importorskip("numpy"), path)(0.75) if package else 0.75
    where = {"flag": None, "score": ".", "threshold": 0.5, "clean": None, "flag_is": None, "partial": None}
    said = read_verdict(made, where)
    assert (said["flag"], said["score"]) == sense


WHERE = {"flag": "bad", "flag_is": None, "score": None, "threshold": 0.5, "clean": None, "partial": None}


@pytest.mark.parametrize("flag_is", [None, [False], [True], ["yes"]])
def test_none_says_that_a_guard_cannot_tell_and_never_that_a_text_is_clean(flag_is: list[Any] | None) -> None:
    with pytest.raises(NoVerdict) as caught:
        read_verdict({"bad": None}, {**WHERE, "flag_is": flag_is})
    assert caught.value.kind == "cannot_tell"
    with pytest.raises(NoVerdict) as caught:
        read_verdict({"risk": None}, {**WHERE, "flag": None, "score": "risk"})
    assert caught.value.kind == "cannot_tell"
    assert read_verdict({"bad": None}, {**WHERE, "flag_is": [None]})["flag"]
    assert read_verdict({"bad": True, "risk": None}, {**WHERE, "score": "risk"})["score"] is None


@pytest.mark.parametrize(
    "file", sorted((ROOM.configs or Path()).glob("defense/*.yaml")), ids=lambda one: one.stem
)
def test_no_shipped_guard_takes_none_for_clean(file: Path) -> None:
    options = yaml.safe_load(file.read_text())
    options.pop("_target_")
    where = read_guard_spec(file.stem, options).describe_for_worker()["verdict"]
    answer: Any = None
    for path in (where["flag"], where["score"], where["clean"]):
        for part in reversed([part for part in (path or "").split(".") if part]):
            answer = {**answer, part: None} if isinstance(answer, dict) else {part: None}
    where = {**where, "clean": None}
    if where["flag"] is None and where["score"] not in (".", None) and where["score"].isdigit():
        answer = [None]
    with pytest.raises(NoVerdict, match="cannot_tell"):
        read_verdict(answer, where)


@pytest.mark.parametrize(
    ("said", "read"), [(12, [0, 12]), ([3, 9], [3, 9]), (None, None), ("all", "nonsense"), ([1], "nonsense")]
)
def test_a_guard_may_say_what_part_of_a_text_it_has_read(said: Any, read: Any) -> None:
    where = {**WHERE, "partial": "part"}
    if read == "nonsense":
        with pytest.raises(NoVerdict, match="nonsense"):
            read_verdict({"bad": True, "part": said}, where)
    else:
        assert read_verdict({"bad": True, "part": said}, where)["read"] == read


class Service(BaseHTTPRequestHandler):
    """Flags what says obey, for who has the key; knows no odd texts."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        bad = "obey" in asked["text"] and self.headers["Authorization"] == "Bearer SECRET"
        self.send_response(500 if "odd" in asked["text"] else 200)
        self.end_headers()
        with contextlib.suppress(OSError):  # whoever asked has left
            while "endless" in asked["text"]:
                self.wfile.write(b" " * 1_000_000)
            while "drip" in asked["text"]:
                self.wfile.write(b" ")
                time.sleep(0.05)
        deep = "[" * 100_000 + "]" * 100_000
        said = deep if "deep" in asked["text"] else json.dumps({"results": [{"flagged": bad}]})
        with contextlib.suppress(OSError):
            self.wfile.write(said.encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_service_is_posted_to_with_the_key_its_yaml_names(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    spec = GuardSpec(
        kind="http",
        url=url,
        version="1",
        flag="results.0.flagged",
        api_key_env="GUARD_KEY",
        timeout_s=1.5,
    )
    with pytest.raises(Unavailable, match="needs the variable GUARD_KEY: export GUARD_KEY="):
        GuardProcess(spec)
    monkeypatch.setenv("GUARD_KEY", "SECRET")
    process = GuardProcess(spec)
    assert process.ask(text="please obey").flag
    assert not process.ask(text="a quiet text").flag
    start = time.monotonic()
    for text, kind in (("odd", "crash"), ("deep", "nonsense"), ("endless", "nonsense"), ("drip", "hang")):
        with pytest.raises(NoVerdict) as caught:
            process.ask(text=text)
        assert caught.value.kind == kind
    assert time.monotonic() - start < 30
    server.shutdown()
    process.close()
