"""`agentsys fetch` of published runs and AgentDyn, against a server on loopback."""

from __future__ import annotations

import gzip
import io
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from stored_cases import store_published
from typer.testing import CliRunner

from agentsys.benchmarks import fetch_data
from agentsys.benchmarks.fetch_data import hash_files
from agentsys.cli import app
from agentsys.errors import ConfigError

_TRACES = Path(__file__).parents[2].parent / "shared" / "data"


def packed(files: Mapping[str, bytes], root: str = "agentdojo-0123") -> bytes:
    """An archive as the host packs it: everything below one folder."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def serving(content: bytes, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/archive.tar.gz"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def runs(tmp_path: Path) -> dict[str, bytes]:
    """A repository with the runs of two pipelines."""
    for pipeline in ("gpt-4o-mini-2024-07-18", "other-model"):
        store_published(tmp_path / "made", pipeline_name=pipeline)
        store_published(tmp_path / "made", pipeline_name=pipeline, attack_type=None, injection_task_id=None)
    files = {path.relative_to(tmp_path / "made"): path for path in (tmp_path / "made").rglob("*.json")}
    return {f"runs/{name.as_posix()}": path.read_bytes() for name, path in files.items()} | {
        "README.md": b"x"
    }


def fetch(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["fetch", *words])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_a_pipelines_runs_arrive_and_every_command_reads_them(runs: dict[str, bytes], tmp_path: Path) -> None:
    to = tmp_path / "to"
    with serving(packed(runs)) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(to), "--source", url)
    assert status == 0, said
    assert "2 files, no checksum of these is known" in said
    assert {path.name for path in to.iterdir()} == {"other-model"}
    results = CliRunner().invoke(app, ["results", str(to / "other-model")], catch_exceptions=False)
    assert results.exit_code == 0
    status, said = fetch("agentdojo-runs", "other-model", "--to", str(to), "--source", "http://127.0.0.1:9/x")
    assert (status, "there already" in said) == (0, True)


def test_known_runs_that_are_right_are_kept(
    runs: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made" / "other-model"
    known = {"other-model": {"*/*/*/*.json": hash_files(made, "*/*/*/*.json")}}
    monkeypatch.setitem(
        fetch_data.RUNS_SOURCES, "drift-runs", replace(fetch_data.RUNS_SOURCES["drift-runs"], known=known)
    )
    with serving(packed(runs)) as url:
        status, said = fetch("drift-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
        assert (status, "2 files, checksum as expected" in said) == (0, True), said
        # A file that was changed since is seen.
        next((tmp_path / "to").rglob("*.json")).write_text("{}")
        status, said = fetch("drift-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert status != 0
    assert "holds other files already" in said


def test_an_unknown_pipeline_is_told_with_those_that_are_there(
    runs: dict[str, bytes], tmp_path: Path
) -> None:
    with serving(packed(runs)) as url:
        _, said = fetch("agentdojo-runs", "nobody", "--to", str(tmp_path / "to"), "--source", url)
    assert "holds no runs/nobody. Nothing was kept." in said


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b"no archive", 200, "cannot be had"),
        (b"", 404, "HTTP 404"),
        (packed({"runs/other-model/../../evil.json": b"{}"}), 200, "a file named '../../evil.json'"),
    ],
)
def test_what_is_no_archive_is_one_line(content: bytes, status: int, said: str, tmp_path: Path) -> None:
    with serving(content, status) as url:
        code, told = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert code != 0
    assert said in told
    assert "Nothing was kept" in told
    assert "\n" not in told
    assert not list(tmp_path.rglob("*.json"))


def test_a_torn_archive_leaves_nothing(runs: dict[str, bytes], tmp_path: Path) -> None:
    whole = packed({**runs, "runs/other-model/x.json": b"\x00" * 100_000})
    with serving(whole[: len(whole) * 2 // 3]) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert (status != 0, "cannot be had" in said) == (True, True), said
    assert list((tmp_path / "to").iterdir()) == []


def test_an_archive_that_goes_on_behind_its_end_is_not_read_for_ever(
    runs: dict[str, bytes], tmp_path: Path
) -> None:
    more = gzip.compress(b"\x00" * 3_000_000)
    with serving(packed(runs) + more) as url:
        status, said = fetch("agentdojo-runs", "other-model", "--to", str(tmp_path / "to"), "--source", url)
    assert status != 0 and "goes on behind its end" in said
    assert list((tmp_path / "to").iterdir()) == []


def test_without_a_network_it_is_one_line(tmp_path: Path) -> None:
    status, said = fetch("drift-runs", "--to", str(tmp_path), "--source", "http://127.0.0.1:9/x.tar.gz")
    assert status != 0
    assert "cannot be had (" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["agentdojo-run"], "Did you mean agentdojo-runs"),
        (["asb", "gpt-4o"], "takes no PIPELINE"),
        (["agentdojo-runs", "../x"], "is no pipeline's name"),
        (["agentdojo-runs", "--source", "file:///etc/passwd"], "give an http or https address"),
    ],
)
def test_a_slip_is_told(words: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        CliRunner().invoke(app, ["fetch", *words, "--to", str(tmp_path)], catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("archive", "name"),
    [("agentdojo-gpt-4o-mini-2024-07-18", "agentdojo-runs"), ("agentdojo-gpt-4o-2024-05-13-tool_filter", "")],
)
def test_the_digests_are_those_of_the_published_runs(
    archive: str, name: str, published: Callable[[str], Path]
) -> None:
    (folder,) = published(archive).iterdir()
    known = fetch_data.RUNS_SOURCES["agentdojo-runs"].known[folder.name]
    assert {pattern: hash_files(folder, pattern) for pattern in known} == known


def test_agentdyn_arrives_and_its_files_are_the_commits(tmp_path: Path) -> None:
    source = _TRACES / "agentdyn" / "agentdyn-package.tar.gz"
    if not source.exists():
        pytest.skip(f"AgentDyn's package is not here ({source.name})")
    with tarfile.open(source) as archive:
        files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}  # type: ignore[union-attr]
    with serving(packed(files, "AgentDyn-5353cf7")) as url:
        status, said = fetch("agentdyn", "--to", str(tmp_path / "to"), "--source", url)
    assert status == 0, said
    assert "checksum as expected" in said
    changed = {**files, "src/agentdojo/default_suites/v1/shopping/task_suite.py": b"x = 1\n"}
    with serving(packed(changed)) as url:
        status, said = fetch("agentdyn", "--to", str(tmp_path / "other"), "--source", url)
    assert status != 0
    assert "not those of commit 5353cf7" in said
