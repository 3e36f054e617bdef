"""Files that strangers made: refused in one line, and nothing is written outside a new folder."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentsys.errors import ConfigError
from agentsys.records import runs_source
from agentsys_plugins.bundles.bundle_archive import BundledCell, BundleReader, BundleWriter, Manifest
from agentsys_plugins.bundles.check_bundle import run_confined
from agentsys_plugins.bundles.rerun_bundle import insert_paths
from agentsys_plugins.bundles.verify_bundle import check_trust

EMPTY: dict[str, Any] = {"versions": {}, "cells": {}, "code": [], "data": {}}


def bundle(folder: Path, members: dict[str, bytes], listed: dict[str, Any] | None = None) -> Path:
    """A zip with these members, and a list of them that fits unless another is given."""
    marks = {name: [len(content), sha256(content).hexdigest()] for name, content in members.items()}
    manifest = {"format": 1, **EMPTY, "members": marks if listed is None else listed}
    file = folder / "some.zip"
    with zipfile.ZipFile(file, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
        packed.writestr("bundle.json", json.dumps(manifest))
    return file


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "records/../../outside",
        "/etc/cron.d/outside",
        "records/./x",
        "records//x",
        "records\\..\\x",
        "C:/x",
        "records/a\nb",
        "records/ /x",
        "records/" + "x" * 300,
    ],
)
def test_a_path_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="refused"):
        BundleReader(bundle(tmp_path, {name: b"x"}))
    with pytest.raises(ConfigError, match="refused"):
        BundleReader(bundle(tmp_path, {}, {name: [1, "0"]}))


def test_a_link_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("files/link")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    file = bundle(tmp_path, {})
    with zipfile.ZipFile(file, "a") as packed:
        packed.writestr(link, "/etc/passwd")
    with pytest.raises(ConfigError, match="link"):
        BundleReader(file)


def test_a_name_twice_is_refused(tmp_path: Path) -> None:
    file = bundle(tmp_path, {"records/a.json": b"1"})
    with zipfile.ZipFile(file, "a") as packed, pytest.warns(UserWarning, match="Duplicate"):
        packed.writestr("records/a.json", b"2")
    with pytest.raises(ConfigError, match="twice"):
        BundleReader(file)


def test_a_member_that_is_not_listed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not in its list"):
        BundleReader(bundle(tmp_path, {"code/evil.py": b"x"}, {}))


def test_a_bundle_that_two_commands_open_at_one_moment_is_read_by_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, write = bundle(tmp_path, {"records/a.json": b"{}"}), runs_source._write_records
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    others = list[Path]()

    def write_while_another_opens_it(*wanted: Any) -> None:
        write(*wanted)
        if not others:
            others.append(Path())
            others[0] = runs_source.open_runs(file)

    monkeypatch.setattr(runs_source, "_write_records", write_while_another_opens_it)
    folder = runs_source.open_runs(file)
    assert others == [folder]
    assert [at.name for at in folder.iterdir()] == ["a.json"]


def test_a_huge_member_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("replies/bomb", bytes(257_000_000))
        packed.writestr("bundle.json", json.dumps({"format": 1, **EMPTY, "members": {}}))
    assert file.stat().st_size < 1_000_000
    with pytest.raises(ConfigError, match="larger than 256 MB"):
        BundleReader(file)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"format": 2}', b'{"a":' * 5_000, b"\xff\xfe", b'{"format": 1}']
)
def test_a_list_that_is_none_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "some.zip"
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("bundle.json", content)
    with pytest.raises(ConfigError) as told:
        BundleReader(file)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" + bytes(200)])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "some.zip").write_bytes(content)
    with pytest.raises(ConfigError, match="no bundle"):
        BundleReader(tmp_path / "some.zip")


def test_members_that_are_said_to_stand_in_front_of_the_file_are_refused(tmp_path: Path) -> None:
    file = bundle(tmp_path, {"records/a.json": b"1"})
    content = bytearray(file.read_bytes())
    # Where the list of members begins; it is looked for in front of its end all the same.
    place = content.rindex(b"PK\x05\x06") + 16
    content[place : place + 4] = (1 << 20).to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"no bundle|damaged"):
        BundleReader(file)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_bytes_changed_anywhere_are_refused_or_named(tmp_path: Path, data: st.DataObject) -> None:
    file = bundle(tmp_path, {"records/a.json": b'{"a": 1}', "replies/b": b"bbbb"})
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    file.write_bytes(content)
    try:
        with BundleReader(file) as opened:
            read = {name: opened.read_member(name) for name in opened.manifest.members}
    except ConfigError:
        return
    original = {"records/a.json": b'{"a": 1}', "replies/b": b"bbbb"}
    assert all(original.get(name) == said for name, (said, as_packed) in read.items() if as_packed)


def test_unpacking_writes_into_its_folder_and_only_what_is_as_it_was(tmp_path: Path) -> None:
    members = {"replies/aa/b.json": b"1", "code/x/y.py": b"2", "records/r.json": b"3"}
    (tmp_path / "to").mkdir()
    with BundleWriter(tmp_path / "a.zip") as new:
        for name, content in members.items():
            new.add(name, content)
        marks = {**new.members, "code/x/y.py": new.members["replies/aa/b.json"]}
        new.finish(Manifest(**EMPTY, members=marks))
    with BundleReader(tmp_path / "a.zip") as opened:
        changed = opened.unpack(tmp_path / "to", {"replies": "there", "code": "code"})
    assert changed == ["code/x/y.py"]
    assert [path for path in (tmp_path / "to").rglob("*") if path.is_file()] == [
        tmp_path / "to" / "there" / "aa" / "b.json"
    ]


def _with(target: str = "agentsys.attacks.text_attacks.NoAttack", **benchmark: Any) -> Manifest:
    attack = {"_target_": target}
    cell = BundledCell(settings={"attack": attack, "benchmark": benchmark}, identity={})
    return Manifest(**{**EMPTY, "cells": {"h": cell}}, members={})


@pytest.mark.parametrize(
    "manifest",
    [
        _with("os.system"),
        _with("agentsys.base.atomic_file.write_atomically"),
        _with("agentsys.base.object_import.add_plugin_paths"),
        _with(modules=["antigravity"]),
        _with(fallback=[{"inner": {"_target_": "subprocess.Popen"}}]),
    ],
)
def test_a_class_that_no_shipped_config_names_needs_the_users_word(manifest: Manifest) -> None:
    with pytest.raises(ConfigError, match="--trust-code"):
        check_trust(manifest, "some.zip")


def test_shipped_classes_do_not() -> None:
    check_trust(_with(modules=[]), "some.zip")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: {"attack": {"file": "bundle:../outside"}},
        lambda folder: {"attack": {"file": "bundle:/etc/passwd"}},
        lambda folder: {"attack": {"file": str(folder.parent)}},
        lambda folder: {"defense": {"words": "/etc/passwd"}},
        lambda folder: {"defense": {"words": ["~/.."]}},
        lambda folder: {"benchmark": {"source": "bundle:files"}},
        lambda folder: {"model": {"weights": "bundle:files"}},
        lambda folder: {"benchmark": {"source": "data"}},
        lambda folder: {"benchmark": {"data": "nowhere"}},
        lambda folder: {"attack": {"base": {"file": "mine.json"}}},
        lambda folder: {"defense": {"privileges_dir": "written"}},
        lambda folder: {"defense": {"members": [{"tool_labels": "labels.yaml"}]}},
        lambda folder: {"defense": {"policy": "/not/there/yet"}},
        lambda folder: {"defense": {"policy": "files/../../up"}},
    ],
)
def test_settings_that_lead_out_of_a_bundle_are_refused(
    tmp_path: Path, change: Callable[[Path], dict[str, Any]]
) -> None:
    (tmp_path / "to" / "files").mkdir(parents=True)
    with pytest.raises(ConfigError, match="refused"):
        insert_paths(change(tmp_path / "to"), tmp_path / "to")


def test_words_that_are_no_paths_pass(tmp_path: Path) -> None:
    said = {
        "benchmark": {"source": "fetched", "data": "sample", "n": 1},
        "attack": {"file": None, "goal": "/help me, and/or ~5 of ../ them", "marker": "[/INST]"},
        "model": {"name": "org/model-7b", "base_url": "https://x.org/v1"},
    }
    assert insert_paths(said, tmp_path) == said


_TRIED = """
import os, socket, tempfile
from pathlib import Path
from agentsys_plugins.bundles.check_bundle import confine_process
confine_process()
def outcome(what):
    try:
        what()
    except PermissionError as refused:
        return str(refused).split(" ")[-1]
    return "done"
tries = {
    "key": lambda: os.environ["OPENAI_API_KEY"] if "OPENAI_API_KEY" in os.environ else None,
    "connect": lambda: socket.create_connection(("127.0.0.1", 9)),
    "look up": lambda: socket.getaddrinfo("example.org", 80),
    "write outside": lambda: Path("OUTSIDE/x").write_text("x"),
    "make outside": lambda: Path("OUTSIDE/y").mkdir(),
    "write inside": lambda: Path("x").write_text("x"),
    "keep for a while": lambda: tempfile.TemporaryFile().close(),
}
print({name: outcome(what) for name, what in tries.items()}, "OPENAI_API_KEY" in os.environ)
"""


def test_a_confined_process_has_a_folder_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    environment = {**os.environ, "AGENTSYS_CONFINED_TO": str(tmp_path / "own")}
    command = [sys.executable, "-c", _TRIED.replace("OUTSIDE", str(tmp_path))]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert said.startswith(
        "{'key': 'done', 'connect': 'network', 'look up': 'network', 'write outside': 'outside',"
        " 'make outside': 'outside', 'write inside': 'done', 'keep for a while': 'done'}"
    )


_PROBE = "import json, os; print(json.dumps([os.getcwd(), sorted(os.environ)]))"


def test_a_bundle_is_run_in_a_child_that_gets_no_key_and_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    monkeypatch.chdir(tmp_path)
    started: list[tuple[list[str], Any]] = []
    start = subprocess.run

    def noted(command: list[str], **options: Any) -> Any:
        started.append((command, options))
        return start([command[0], "-c", _PROBE], **options)

    monkeypatch.setattr(subprocess, "run", noted)
    status, said = run_confined(["agentsys_plugins.bundles.check_bundle", "x.zip"])
    folder, names = json.loads(said)
    assert status == 0
    assert not Path(folder).exists() and folder != str(tmp_path) and "OPENAI_API_KEY" not in names
    assert started[0][0][1:] == ["-P", "-m", "agentsys_plugins.bundles.check_bundle", "x.zip"]


@pytest.mark.parametrize("below", ["", "/x.zip"])
def test_the_file_in_the_way_of_a_bundle_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "old").touch()
    with pytest.raises(ConfigError, match=r"There is a file \S+/old already: give another"):
        BundleWriter(Path(f"{tmp_path}/old{below}"))
