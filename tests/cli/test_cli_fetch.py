"""`agentsys fetch asb` against a server on loopback: all files as expected, or nothing kept and one line."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.benchmarks.asb import asb_data
from agentsys.benchmarks.asb.asb_data import CHECKSUMS, sample_folder
from agentsys.benchmarks.fetch_data import fetch_asb
from agentsys.cli import app
from agentsys.errors import ConfigError

CONTENTS = {name: f'{{"file": "{name}"}}\n'.encode() for name in CHECKSUMS}
EXPECTED = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}


@contextmanager
def serving(contents: Mapping[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Address of a folder that holds these files, and what is asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            asked.append(name)
            self.send_response(200 if name in contents else 404)
            self.end_headers()
            self.wfile.write(contents.get(name, b"no such file"))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/data", asked
    finally:
        server.shutdown()
        server.server_close()


def kept(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*")}


def test_every_file_arrives_and_is_not_asked_for_again(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "asb"
    with serving(CONTENTS) as (address, asked):
        done = fetch_asb(folder, address, EXPECTED)
        assert done.fresh and set(asked) == set(CONTENTS)
        assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS
        assert kept(folder) == {*CONTENTS, "SOURCE.txt"}
        assert not fetch_asb(folder, address, EXPECTED).fresh
        assert len(asked) == len(CONTENTS)


def test_a_file_that_differs_is_named_and_nothing_is_kept(tmp_path: Path) -> None:
    changed = {**CONTENTS, "all_attack_tools_non_aggressive.jsonl": b"something else"}
    with serving(changed) as (address, _), pytest.raises(ConfigError) as caught:
        fetch_asb(tmp_path / "asb", address, EXPECTED)
    said = str(caught.value)
    assert "all_attack_tools_non_aggressive.jsonl" in said
    assert hashlib.sha256(b"something else").hexdigest() in said
    assert EXPECTED["all_attack_tools_non_aggressive.jsonl"] in said
    assert "Nothing was kept" in said
    assert kept(tmp_path) == set()


def test_files_of_before_stay_where_a_download_fails(tmp_path: Path) -> None:
    (tmp_path / "agent_task.jsonl").write_bytes(b"mine")
    half = {"agent_task.jsonl": CONTENTS["agent_task.jsonl"]}
    missing = pytest.raises(ConfigError, match=r"all_normal_tools\.jsonl: HTTP 404")
    with serving(half) as (address, _), missing:
        fetch_asb(tmp_path, address, EXPECTED)
    assert (tmp_path / "agent_task.jsonl").read_bytes() == b"mine"
    assert kept(tmp_path) == {"agent_task.jsonl"}


def test_nobody_at_the_other_end_is_one_line(tmp_path: Path) -> None:
    with serving(CONTENTS) as (address, _):
        pass
    with pytest.raises(ConfigError, match=r"cannot be reached \(.*Nothing was kept") as caught:
        fetch_asb(tmp_path / "asb", address, EXPECTED)
    assert "\n" not in str(caught.value)
    assert kept(tmp_path) == set()


@pytest.mark.parametrize("address", ["file:///etc", "/etc", "ftp://example.org/x"])
def test_only_the_web_is_a_source(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match="give an http or https address"):
        fetch_asb(tmp_path, address, EXPECTED)


def test_the_command_puts_them_where_the_benchmark_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = {path.name: path.read_bytes() for path in sample_folder().glob("*.jsonl")}
    for name in contents:
        monkeypatch.setitem(asb_data.CHECKSUMS, name, hashlib.sha256(contents[name]).hexdigest())
    for name in set(asb_data.CHECKSUMS) - set(contents):
        monkeypatch.delitem(asb_data.CHECKSUMS, name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with serving(contents) as (address, _):
        done = CliRunner().invoke(app, ["fetch", "asb", "--source", address])
    assert done.exit_code == 0, done.output
    assert "benchmark=asb benchmark.data=fetched" in done.output.replace("\n", "")
    assert len(asb_data.load_asb_data("fetched")[0].agents) == 4


def test_a_data_set_nobody_knows_is_one_line() -> None:
    done = CliRunner().invoke(app, ["fetch", "asbb"])
    assert isinstance(done.exception, ConfigError)
    assert "Did you mean asb" in str(done.exception)
